package compose

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestOnlyStaticGroupsThatMoveAreExclusive(t *testing.T) {
	for _, c := range []struct {
		static   bool
		declared fleet.OnNodeLoss
		want     bool
	}{
		{true, fleet.NodeLossReplace, true},
		{true, fleet.NodeLossWait, false},
		{true, fleet.NodeLossStop, false},
		{true, "", false},
		{false, fleet.NodeLossReplace, false},
		{false, "", false},
	} {
		g := fleet.Group{Spec: fleet.GroupSpec{Static: fleet.Static{Enabled: c.static}, OnNodeLoss: c.declared}}
		if got := Compose(g, Materials{}, 0).Exclusive(); got != c.want {
			t.Errorf("static %v, onNodeLoss %q: exclusive %v, want %v", c.static, c.declared, got, c.want)
		}
	}
}
