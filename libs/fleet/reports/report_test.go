package reports

import (
	"testing"
	"time"
)

func TestUnreportedFieldsKeepTheirValue(t *testing.T) {
	at := time.Unix(1e9, 0)
	used := Usage{MemoryBytes: 1 << 20}
	before := InstanceReport{Players: 3, MaxPlayers: 20, PlayersKnown: true, TPS: 19, HeartbeatAt: at, Usage: used}
	for name, c := range map[string]struct {
		from InstanceReport
		said InstanceSaid
		want InstanceReport
	}{
		"nothing but a sign of life": {before, InstanceSaid{At: at.Add(time.Second)}, InstanceReport{3, 20, true, at.Add(time.Second), 19, used}},
		"that nobody plays any more": {before, InstanceSaid{Players: new(0), At: at}, InstanceReport{0, 20, true, at, 19, used}},
		"what was said earlier":      {before, InstanceSaid{MaxPlayers: new(30), At: at.Add(-time.Hour)}, InstanceReport{3, 30, true, at, 19, used}},
		"no players":                 {InstanceReport{}, InstanceSaid{TPS: new(5.0), At: at}, InstanceReport{0, 0, false, at, 5, Usage{}}},
	} {
		if got := c.from.With(c.said); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
