package compose

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
)

func TestPlanCopiesRunSettings(t *testing.T) {
	g := fleet.Group{Name: "g", Revision: 1, Spec: fleet.DefaultSpec()}
	g.Spec.Limits, g.Spec.Confine = isolation.Limits{Processes: 9, LogMiB: 1}, isolation.Confine{User: "games", PrivateTmp: true}
	g.Spec.Container, g.Spec.RCON = isolation.Container{Image: "i"}, fleet.RCON{Port: "p", Password: "w"}
	g.Spec.Liveness, g.Spec.MaxLifetimeSeconds = fleet.Liveness{Check: fleet.Check{Type: fleet.CheckA2S}, Failures: 5}, 7
	p := Compose(g, Materials{}, 0)
	if p.Limits != g.Spec.Limits || p.Confine != g.Spec.Confine || p.Container.Image != "i" || p.RCON != g.Spec.RCON ||
		p.Liveness != g.Spec.Liveness || p.MaxLifetimeSeconds != 7 {
		t.Errorf("%+v", p)
	}
}
