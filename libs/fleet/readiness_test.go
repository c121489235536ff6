package fleet

import (
	"testing"
)

func TestReadinessAnyAcceptsPort(t *testing.T) {
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
