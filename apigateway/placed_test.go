package apigateway

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// scheduling runs a fake scheduler: every second new instance of a group waits for a node.
func scheduling(made chan<- *fleet.Instance) func(*Config) {
	return func(c *Config) {
		c.View.Subscribe(func(b view.Batch) {
			for _, ch := range b.Changes {
				if ch.Kind == view.KindIntent && ch.Before == nil {
					made <- ch.Instance
				}
			}
		})
	}
}

func TestAStartTellsWhatWasPlacedAndWhyTheRestWaits(t *testing.T) {
	t.Parallel()
	made, stop, ended := make(chan *fleet.Instance, 1000), make(chan struct{}), make(chan struct{})
	s := newSite(t, scheduling(made))
	s.node("n1", fleet.Resources{MemoryMiB: 1 << 20, CPU: 1 << 16})
	s.group("lobby", nil)
	s.do("POST", "/api/v1/groups/lobby/start", `{"count":2}`).want(200).is("count", 2).is("placed", 0).
		is("waiting.1.instance", "lobby-2").is("waiting.1.reason", "Unscheduled") // no scheduler runs
	<-made
	<-made

	s.commit(store.Create(keys.Session("scheduler", "s1"), cluster.Session{Service: "scheduler", Replica: "s1", URL: "http://127.0.0.1:1"}))
	go func() {
		defer close(ended)
		for {
			var i *fleet.Instance
			select {
			case i = <-made:
			case <-stop:
				return
			}
			id, waits := i.Intent.ID, fleet.Pending{Instance: i.Intent.ID, Generation: 1, Reason: fleet.ReasonNoNodeFits, Message: "add memory"}
			decision := store.Create(keys.Pending(id), waits)
			if i.Intent.Ordinal%2 == 1 {
				decision = store.Create(keys.Placement("n1", id), fleet.Placement{Instance: id, Name: i.Intent.Name, Group: "lobby", Node: "n1", Generation: 1, Plan: i.Intent.Plan})
			}
			if _, err := s.store.Commit(t.Context(), store.Txn{Writes: []store.Write{decision}}); err != nil {
				t.Error(err)
			}
		}
	}()
	// The response waits only for a limited time, which may be too short on a loaded machine.
	for begin := time.Now(); ; {
		r := s.do("POST", "/api/v1/groups/lobby/start", `{"count":2}`).want(200).is("count", 2)
		if r.field("placed") == 1.0 && r.field("waiting.0.reason") == string(fleet.ReasonNoNodeFits) {
			r.is("waiting.1", nil).is("waiting.0.message", "add memory").is("instances.0.node", "n1")
			break
		}
		if time.Since(begin) > await.Patience {
			t.Fatalf("it is not told what was placed: %s", r.raw)
		}
	}
	close(stop)
	<-ended
}
