package nodeagent_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestShutdownRequestStopsInstances(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, ended := s.begin(nil) // configured to leave its instances running
	select {
	case <-a.Ready():
	case <-time.After(await.Patience):
		t.Fatal("the agent was not ready in time")
	}
	first, second := s.id(1), s.id(2)
	plan := basic("read line; echo bye >bye; exit 0")
	plan.Stop.Command = "stop"
	s.online(first, plan)
	s.online(second, basic("sleep 1000"))
	api := s.api()
	if err := api.Shutdown(t.Context(), client.Shutdown{Node: node, Reason: strings.Repeat("x", 201)}); errs.FieldOf(err) != "reason" {
		t.Errorf("an endless reason: %v", err)
	}
	for _, other := range []fleet.NodeID{"node-2", ""} { // another node that had this agent's address
		if err := api.Shutdown(t.Context(), client.Shutdown{Node: other}); !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), string(node)) {
			t.Errorf("asked as %q: %v", other, err)
		}
	}
	if err := api.Shutdown(t.Context(), client.Shutdown{Node: node, Reason: "the host is replaced"}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if ended <- nil; !errors.Is(err, lifecycle.ErrEnd) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(await.Patience):
		t.Fatal("the agent did not end in time")
	}
	for _, id := range []fleet.InstanceID{first, second} {
		if st := s.status(id); st.State != fleet.Stopped || st.PID != 0 {
			t.Errorf("%s: %+v", id, st)
		}
	}
	if _, err := store.Get(t.Context(), s.store, keys.NodeSession(node)); !errs.Is(err, errs.NotFound) {
		t.Errorf("its session is not given back: %v", err)
	}
}
