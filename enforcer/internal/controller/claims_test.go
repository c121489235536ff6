package controller

import (
	"testing"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestAClaimedInstanceIsNotScaledDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("arena", func(g *fleet.Group) { g.Spec.Scaling.Min = 3 })
	all := w.untilLiving("arena", 3)
	for _, i := range all {
		w.online(i.Intent.ID)
	}
	claimed := all[2].Intent.ID // the youngest goes first
	rev := w.commit(store.Create(keys.Claims(claimed), allocation.Claims{
		Instance: claimed, Generation: 1, Claims: []allocation.Claim{{ID: allocation.NewID(claimed, "1"), Slots: 1, By: "bob"}},
	}))
	w.change("arena", func(g *fleet.Group) { g.Spec.Scaling.Min = 0 })
	if left := w.untilLiving("arena", 1); left[0].Intent.ID != claimed {
		t.Errorf("%s is left, want the claimed one", left[0].Intent.Name)
	}
	w.commit(store.Remove(keys.Claims(claimed), rev))
	w.untilOrder(claimed, fleet.OrderStop)
}
