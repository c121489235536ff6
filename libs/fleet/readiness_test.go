package fleet

import "testing"

func TestAPlanAsksThePlatformsPingWhereReadinessIsAny(t *testing.T) {
	for _, c := range []struct {
		software  Software
		command   string
		readiness Check
		want      Check
		asked     CheckType
	}{
		{Software{Platform: "PAPER"}, "", Check{}, Check{Type: CheckAny}, CheckMinecraft},
		{Software{Platform: "VELOCITY"}, "", Check{}, Check{Type: CheckAny}, CheckMinecraft},
		{Software{Platform: "GEYSER"}, "", Check{}, Check{Type: CheckAny}, CheckBedrock},
		{Software{Platform: "PAPER", Assumed: true}, "", Check{}, Check{Type: CheckNone}, CheckNone},
		{Software{Platform: "PAPER"}, "./run", Check{}, Check{Type: CheckNone}, CheckNone},
		{Software{}, "", Check{}, Check{Type: CheckNone}, CheckNone},
		{Software{Platform: "PAPER"}, "", Check{Type: CheckPort}, Check{Type: CheckPort}, CheckPort},
		{Software{}, "./run", Check{Type: CheckAny, Port: "query"}, Check{Type: CheckAny, Port: "query"}, CheckMinecraft},
	} {
		s := DefaultSpec()
		s.Software, s.Command, s.Readiness = c.software, c.command, c.readiness
		p := Compose(Group{Name: "g", Spec: s}, Materials{}, 0)
		if p.Readiness != c.want {
			t.Errorf("%+v with command %q: readiness %+v, want %+v", c.software, c.command, p.Readiness, c.want)
		}
		if got := p.Asked(); got.Type != c.asked || got.Port != c.readiness.Port {
			t.Errorf("%+v with command %q: asked is %+v, want %s at port %q", c.software, c.command, got, c.asked, c.readiness.Port)
		}
	}
}

func TestReadinessAnyTakesAPortAndWatchesNothing(t *testing.T) {
	s := DefaultSpec()
	s.AdditionalPorts = []NamedPort{{Name: "query", Protocol: "tcp", Range: PortRange{Start: 5000, End: 5010}}}
	s.Readiness = Check{Type: CheckAny, Port: "query"}
	if problems := s.Validate(); len(problems) > 0 {
		t.Error(problems)
	}
	s.Liveness = Liveness{Check: Check{Type: CheckAny}}
	if problems := s.Validate(); len(problems) != 1 {
		t.Errorf("a liveness of type any: %v", problems)
	}
}
