package nodeagent_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// fill places n instances and waits until they run.
func (s *site) fill(n int, change func(n int, p *fleet.Plan)) map[fleet.InstanceID]fleet.Status {
	s.t.Helper()
	all := map[fleet.InstanceID]fleet.Status{}
	for i := range n {
		plan := basic("sleep 1000")
		if change != nil {
			change(i, &plan)
		}
		s.place(instance(i), 1, plan, 0)
	}
	for i := range n {
		all[instance(i)] = s.awaitState(instance(i), 1, fleet.Online)
	}
	return all
}

func instance(n int) fleet.InstanceID { return fleet.InstanceID(fmt.Sprintf("aaaa%02d", n)) }

func TestWithoutTheStoreOnlyWhatCrashedIsStartedAgain(t *testing.T) {
	s := newSite(t)
	s.start(taking)
	before := s.fill(20, func(n int, p *fleet.Plan) {
		switch n {
		case 3:
			p.OnCrash = fleet.CrashRestart
		case 5:
			p.OnCrash = fleet.CrashStop
		}
	})
	s.etcd.Stop()
	for i := range 6 {
		killed(t, before[instance(i)].PID)
	}
	for i := range 5 {
		s.awaitLocal(instance(i), "a second run", func(now client.Instance) bool {
			return now.State == fleet.Online && now.Restarts == 1 && alive(now.PID) && now.PID != before[now.ID].PID
		})
	}
	if a := s.awaitAgent("the outage seen", func(a client.Agent) bool { return !a.Etcd.Reachable && !a.Etcd.SessionAlive }); a.LocalRestarts != 5 ||
		a.Unwritten == 0 || a.Instances[fleet.Online] != 19 || a.Instances[fleet.Crashed] != 1 || a.Orphans != 0 {
		t.Errorf("agent %+v", a)
	}
	s.etcd.Restart(t)
	for i := range 20 {
		id := instance(i)
		switch {
		case i < 5:
			s.await(id, "the second run reported", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
		case i == 5:
			s.awaitState(id, 1, fleet.Crashed)
		}
	}
	s.awaitAgent("all reported", func(a client.Agent) bool { return a.Etcd.Reachable && a.Unwritten == 0 && a.LocalRestarts == 5 })
	for i := 6; i < 20; i++ {
		if st := s.status(instance(i)); st.ModRev != before[instance(i)].ModRev || !alive(st.PID) {
			t.Errorf("untouched by the outage: before %+v\nafter %+v", before[instance(i)], st)
		}
	}
	s.order(instance(7), 1, fleet.OrderStop)
	s.awaitState(instance(7), 1, fleet.Stopped)
}

func TestAnAgentThatStartsWithoutTheStoreAdoptsAndServes(t *testing.T) {
	s := newSite(t)
	kill := s.spawn()
	counting := basic(`n=0; while :; do n=$((n+1)); echo "line $n"; read -t 0.05 x && echo "got $x"; done`)
	s.place("bbbbbb", 1, counting, 0)
	before := s.fill(6, nil)
	before["bbbbbb"] = s.awaitState("bbbbbb", 1, fleet.Online)
	first, err := s.local().Read(t.Context(), "bbbbbb", 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	s.etcd.Stop()
	kill()
	killed(t, before[instance(0)].PID)

	s.spawn()
	for id, was := range before {
		if id == instance(0) {
			s.awaitLocal(id, "started again", func(i client.Instance) bool { return i.State == fleet.Online && i.PID != was.PID })
			continue
		}
		s.awaitLocal(id, "adopted", func(i client.Instance) bool {
			return i.State == fleet.Online && i.Reason == fleet.ReasonAdopted && i.PID == was.PID
		})
	}
	if a, err := s.local().Agent(t.Context()); err != nil || a.Etcd.Reachable || !a.Etcd.LastContact.IsZero() {
		t.Errorf("agent %+v, %v", a, err)
	}
	if err := s.local().WriteLine(t.Context(), "bbbbbb", "hello"); err != nil {
		t.Fatal(err)
	}
	text, next := string(first.Data), first.Next
	eventually(t, "the console going on at its byte", func() (string, bool) {
		chunk, err := s.local().Read(t.Context(), "bbbbbb", next, 0)
		text, next = text+string(chunk.Data), chunk.Next
		return fmt.Sprintf("%q, %v", text, err), strings.Contains(text, "got hello\n") && strings.HasSuffix(text, "\n")
	})
	n := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "got") {
			continue
		}
		if n++; line != fmt.Sprintf("line %d\n", n) {
			t.Fatalf("line %d is %q", n, line)
		}
	}

	s.etcd.Restart(t)
	s.await(instance(0), "its second run reported", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
	s.awaitAgent("joined", func(a client.Agent) bool { return a.Etcd.Reachable && a.Unwritten == 0 })
	for id, was := range before {
		if st := s.status(id); id != instance(0) && (st.PID != was.PID || st.Restarts != 0 || !alive(st.PID)) {
			t.Errorf("before %+v\nafter %+v", was, st)
		}
	}
	if _, err := s.local().Stop(t.Context(), client.Stop{All: true, Force: true}); err != nil {
		t.Error(err)
	}
	for _, was := range before {
		s.awaitState(was.Instance, 1, fleet.Stopped)
	}
}

func TestAStopOnTheNodeHoldsUntilTheStoreIsBackAndIsReportedThen(t *testing.T) {
	s := newSite(t)
	kill := s.spawn()
	before := s.fill(3, func(_ int, p *fleet.Plan) { p.OnCrash = fleet.CrashRestart })
	s.etcd.Stop()
	s.awaitAgent("the outage seen", func(a client.Agent) bool { return !a.Etcd.Reachable })
	answer, err := s.local().Stop(t.Context(), client.Stop{Instances: []fleet.InstanceID{instance(0), instance(1)}})
	if err != nil || len(answer.Instances) != 2 || !strings.Contains(answer.Note, "scale it down") {
		t.Fatalf("answer %+v, %v", answer, err)
	}
	kill() // at once: what was answered is journalled
	s.begin(taking)
	for i := range 2 {
		s.awaitLocal(instance(i), "stopped", func(i client.Instance) bool {
			return i.State == fleet.Stopped && i.Reason == fleet.ReasonStoppedLocally && i.Restarts == 0
		})
		awaitGone(t, before[instance(i)].PID)
	}
	s.etcd.Restart(t)
	for i := range 2 {
		st := s.awaitState(instance(i), 1, fleet.Stopped)
		if st.Reason != fleet.ReasonStoppedLocally || !strings.Contains(st.Message, "uid ") || st.Restarts != 0 {
			t.Errorf("status %+v", st)
		}
	}
	if st := s.status(instance(2)); st.State != fleet.Online || st.PID != before[instance(2)].PID {
		t.Errorf("status %+v", st)
	}
}

func TestAnEmptiedStoreStopsNothing(t *testing.T) {
	ways := map[string]func(*site){
		"an empty etcd took its place": func(s *site) {
			s.etcd.Stop()
			s.etcd.Empty(s.t)
		},
		"all keys were deleted": func(s *site) {
			if _, err := s.etcd.Raw().Delete(s.t.Context(), "", clientv3.WithPrefix()); err != nil {
				s.t.Fatal(err)
			}
		},
	}
	for name, lose := range ways {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.start(taking)
			before := s.fill(6, nil)
			first := s.awaitAgent("the session", func(a client.Agent) bool { return a.Etcd.SessionAlive })
			lose(s)
			s.awaitAgent("orphans under a new session", func(a client.Agent) bool {
				return a.Orphans == 6 && a.Etcd.Reachable && a.Etcd.Cluster != first.Etcd.Cluster
			})
			all, err := s.local().Instances(t.Context())
			if err != nil || len(all) != 6 {
				t.Fatalf("%+v, %v", all, err)
			}
			for _, i := range all {
				if !i.Orphan || i.PID != before[i.ID].PID || !alive(i.PID) || i.State != fleet.Online {
					t.Errorf("instance %+v", i)
				}
			}
			if n, err := store.Get(t.Context(), s.store, store.NodeKey(node)); err != nil || n.ID != node {
				t.Errorf("the node's record: %+v, %v", n, err)
			}
			s.place("bbbbbb", 1, basic("sleep 1000"), 0)
			s.awaitState("bbbbbb", 1, fleet.Online)
		})
	}
}
