package compose

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestReadinessAnyUsesPlatformPing(t *testing.T) {
	for _, c := range []struct {
		software  fleet.Software
		command   string
		readiness fleet.Check
		want      fleet.Check
		asked     fleet.CheckType
	}{
		{fleet.Software{Platform: "PAPER"}, "", fleet.Check{}, fleet.Check{Type: fleet.CheckAny}, fleet.CheckMinecraft},
		{fleet.Software{Platform: "VELOCITY"}, "", fleet.Check{}, fleet.Check{Type: fleet.CheckAny}, fleet.CheckMinecraft},
		{fleet.Software{Platform: "GEYSER"}, "", fleet.Check{}, fleet.Check{Type: fleet.CheckAny}, fleet.CheckBedrock},
		{fleet.Software{Platform: "PAPER", Assumed: true}, "", fleet.Check{}, fleet.Check{Type: fleet.CheckNone}, fleet.CheckNone},
		{fleet.Software{Platform: "PAPER"}, "./run", fleet.Check{}, fleet.Check{Type: fleet.CheckNone}, fleet.CheckNone},
		{fleet.Software{}, "", fleet.Check{}, fleet.Check{Type: fleet.CheckNone}, fleet.CheckNone},
		{fleet.Software{Platform: "PAPER"}, "", fleet.Check{Type: fleet.CheckPort}, fleet.Check{Type: fleet.CheckPort}, fleet.CheckPort},
		{fleet.Software{}, "./run", fleet.Check{Type: fleet.CheckAny, Port: "query"}, fleet.Check{Type: fleet.CheckAny, Port: "query"}, fleet.CheckMinecraft},
	} {
		s := fleet.DefaultSpec()
		s.Software, s.Command, s.Readiness = c.software, c.command, c.readiness
		p := Compose(fleet.Group{Name: "g", Spec: s}, Materials{}, 0)
		if p.Readiness != c.want {
			t.Errorf("%+v with command %q: readiness %+v, want %+v", c.software, c.command, p.Readiness, c.want)
		}
		if got := p.Asked(); got.Type != c.asked || got.Port != c.readiness.Port {
			t.Errorf("%+v with command %q: asked is %+v, want %s at port %q", c.software, c.command, got, c.asked, c.readiness.Port)
		}
	}
}
