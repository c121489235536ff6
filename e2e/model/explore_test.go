package model

import (
	"fmt"
	"slices"
	"testing"
)

// counters is a machine of two processes that each increment a number by a read and a
// separate write.
type counters struct {
	locked bool // a read takes a lock and the write releases it
	sticky bool // a process may end while it holds the lock
}

type counting struct {
	number int8
	read   [2]int8
	phase  [2]int8 // 0 not started, 1 read, 2 done
	holder int8
}

func (c counters) Start() counting { return counting{} }

func (c counters) Next(s counting, emit func(Step[counting])) {
	for p := range s.phase {
		switch s.phase[p] {
		case 0:
			if c.locked && s.holder != 0 {
				continue
			}
			to := s
			to.read[p], to.phase[p], to.holder = s.number, 1, int8(p)+1
			emit(Step[counting]{To: to, Says: say("%v reads", process(p))})
		case 1:
			to := s
			to.number, to.phase[p], to.holder = s.read[p]+1, 2, 0
			emit(Step[counting]{To: to, Says: say("%v writes", process(p))})
			if c.sticky {
				to := s
				to.phase[p] = 2
				emit(Step[counting]{To: to, Says: say("%v is killed", process(p)), Fault: true})
			}
		}
	}
}

func (c counters) Broken(s counting) string {
	if !c.sticky && s.phase == [2]int8{2, 2} && s.number != 2 {
		return "nothing is lost"
	}
	return ""
}
func (c counters) Goal(s counting) bool       { return s.phase == [2]int8{2, 2} }
func (c counters) Forget(s counting) counting { return s }
func (c counters) Rename(s counting) counting { return s }

type process int

func (p process) String() string { return fmt.Sprintf("process %d", int(p)+1) }

func TestTheExplorerFindsTheShortestWayToBreakARule(t *testing.T) {
	r := Explore(counters{}, 1000)
	want := []string{"process 1 reads", "process 2 reads", "process 1 writes", "process 2 writes"}
	if r.Broken != "nothing is lost" || len(r.Trace) != len(want) || !slices.Equal(r.Trace[:2], want[:2]) {
		t.Errorf("broken %q by %q, want a trace like %q", r.Broken, r.Trace, want)
	}
}

func TestTheExplorerWalksEveryStateOfAMachineThatBreaksNothing(t *testing.T) {
	r := Explore(counters{locked: true}, 1000)
	if r.Broken != "" || r.States != 9 || r.Depth != 4 || r.Cut {
		t.Errorf("result = %+v, want 9 states, 4 deep, nothing broken", r)
	}
}

func TestTheExplorerFindsATrap(t *testing.T) {
	r := Explore(counters{locked: true, sticky: true}, 1000)
	if want := []string{"process 1 reads", "process 1 is killed"}; r.Broken != Trapped || !slices.Equal(r.Trace, want) {
		t.Errorf("broken %q by %q, want %q by %q", r.Broken, r.Trace, Trapped, want)
	}
}

func TestTheExplorerSaysWhenItDidNotSeeAll(t *testing.T) {
	if r := Explore(counters{locked: true}, 3); !r.Cut || r.Broken != "" {
		t.Errorf("result = %+v, want it cut", r)
	}
}
