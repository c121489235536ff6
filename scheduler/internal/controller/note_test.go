package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// at lets the controller work at a given time until nothing is in progress. It returns the
// number of written notes. The controller has not seen them yet.
func (l *lagging) at(now time.Time) (notes int) {
	l.t.Helper()
	before := l.view.Snapshot().Rev
	l.ctl.pass(l.t.Context(), now)
	for l.ctl.inProgress > 0 {
		l.ctl.onCommitResult(l.answer(), now)
		l.ctl.pass(l.t.Context(), now)
	}
	l.write(store.Touch(keys.QuotaAlloc("none"), cluster.QuotaAlloc{})) // waits for the view
	for _, i := range l.view.Snapshot().Instances.All() {
		if i.Pending != nil && i.Pending.ModRev > before {
			notes++
		}
	}
	return notes
}

func TestAReasonThatChangesWhileItsNoteIsUnderWayIsTold(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 5)
	ids := l.want("lobby", 2, nil)
	l.showAll()
	now := time.Now()
	l.passUnanswered(now) // both notes are in progress
	l.node("n2", 6)
	l.showAll()
	l.ctl.pass(t.Context(), now)
	l.at(now)
	for range 3 {
		now = now.Add(2 * noteEvery)
		l.showAll()
		l.at(now)
	}
	for _, id := range ids {
		if p := l.note(id); p.Nodes != 2 {
			t.Errorf("%s says %q", id, p.Message)
		}
	}
}

func TestNotesThatAreDueDelayNoPlacement(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 1000)
	l.want("large", 2000, func(s *fleet.GroupSpec) { s.Resources.MemoryMiB = 2000 })
	l.ctl.depth = 0 // sends nothing yet
	l.showAll()
	l.at(time.Now())
	late := l.want("late", 1, nil)
	l.showAll()
	l.ctl.depth = 1
	l.passUnanswered(time.Now())
	f := l.answer()
	if len(l.placed(late)) != 1 {
		t.Errorf("it is not placed by the first transaction, which has %d parts", len(f.parts))
	}
	l.ctl.onCommitResult(f, time.Now())
}

func TestPlacementsLeaveRoomForNotes(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	ids := l.want("large", 1, func(s *fleet.GroupSpec) { s.Resources.MemoryMiB, s.Priority = 2000, 1 })
	for n := range 200 {
		l.node(fleet.NodeID("n"+string(rune('a'+n/26))+string(rune('a'+n%26))), 10)
	}
	l.want("small", 200, nil)
	l.ctl.depth = 0
	l.showAll()
	l.at(time.Now())
	l.ctl.depth = 1
	l.passUnanswered(time.Now())
	f := l.answer()
	if l.note(ids[0]).Reason != fleet.ReasonNoNodeFits {
		t.Error("it says nothing yet")
	}
	l.ctl.onCommitResult(f, time.Now())
}

func TestManyThatWaitAreToldSoonOfAnotherReasonAndSeldomOfCounts(t *testing.T) {
	t.Parallel()
	t.Run("all for the same", func(t *testing.T) { tellMany(t, 1) })
	t.Run("for many things", func(t *testing.T) { tellMany(t, 50) })
}

func tellMany(t *testing.T, groups int) {
	l := newLagging(t)
	const many = 2000
	for n := range groups {
		l.want(fleet.GroupName(fmt.Sprint("g", n)), many/groups, func(s *fleet.GroupSpec) { s.Resources.MemoryMiB = 1000 + n })
	}
	l.showAll()
	now := time.Now()
	if n := l.at(now); n != many {
		t.Fatalf("%d of %d were told at first", n, many)
	}
	memory := 0
	l.node("n1", 1)
	now = now.Add(2 * noteEvery)
	l.showAll()
	if n := l.at(now); n != many {
		t.Errorf("%d of %d were told that a node is there and does not suit", n, many)
	}
	written, seconds := 0, 12
	for range 4 * seconds { // the counts in the message change again and again
		now = now.Add(noteEvery / 4)
		memory++
		l.renode(func(n *fleet.Node) { n.Capacity.MemoryMiB = 1 + memory })
		l.showAll()
		written += l.at(now)
	}
	if most := (seconds + 2) * notesPerSecond; written > most || written < many {
		t.Errorf("%d notes in %d seconds, want at most %d and each at least once", written, seconds, most)
	}
	now = now.Add(time.Duration(2*many/notesPerSecond) * time.Second)
	l.showAll()
	l.at(now)
	l.showAll()
	if n := l.at(now.Add(noteEvery)); n > 0 {
		t.Errorf("%d notes though nothing changed", n)
	}
	for id, i := range l.ctl.state.snap.Instances.All() {
		if i.Pending == nil || i.Pending.Message != l.ctl.state.waiters[id].Class.Verdict.Message {
			t.Fatalf("%s says %+v", id, i.Pending)
		}
	}
}

func TestANoteWithALostAnswerDoesNotOutliveItsPlacement(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 5)
	id := l.want("lobby", 1, nil)[0]
	l.showAll()
	joined := l.node("n2", 10)
	l.faults.LoseAnswer(keys.Root+"pending/", true)
	l.pass()
	l.faults.Heal()
	l.show(joined) // but not the later note
	l.pass()
	l.settle()
	l.wantOn(id, "n2")
	if _, err := store.Get(t.Context(), l.c, keys.Pending(id)); !errs.Is(err, errs.NotFound) {
		t.Errorf("a placed instance says that it waits: %v", err)
	}
}
