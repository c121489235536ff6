package fleet

import (
	"bytes"
	"testing"
	"time"
)

func TestADatagramSaysItsBytesInText(t *testing.T) {
	cases := []struct {
		send string
		want []byte
		ok   bool
	}{
		{"", []byte{0}, true},
		{"ping", []byte("ping"), true},
		{`\xff\x00a\n\r\t\\`, []byte("\xff\x00a\n\r\t\\"), true},
		{`\`, nil, false},
		{`\x1`, nil, false},
		{`\xg0`, nil, false},
		{`\x+1`, nil, false},
		{`\q`, nil, false},
	}
	for _, c := range cases {
		got, err := Check{Type: CheckUDP, Send: c.send}.Datagram()
		if (err == nil) != c.ok || !bytes.Equal(got, c.want) {
			t.Errorf("%q is %q, %v", c.send, got, err)
		}
	}
}

func TestALivenessThatSaysNothingHasItsDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		l                 Liveness
		interval, timeout time.Duration
	}{
		"asked":                     {Liveness{Check: Check{Type: CheckPort}}, 10 * time.Second, 2 * time.Second},
		"asked as it says":          {Liveness{Check: Check{Type: CheckPort}, IntervalSeconds: 0.5, TimeoutSeconds: 7}, 500 * time.Millisecond, 7 * time.Second},
		"heard":                     {Liveness{Check: Check{Type: CheckHeartbeat}}, 90 * time.Second, 2 * time.Second},
		"heard as often as it says": {Liveness{Check: Check{Type: CheckHeartbeat}, IntervalSeconds: 60}, time.Minute, 2 * time.Second},
	} {
		if c.l.Interval() != c.interval || c.l.Timeout() != c.timeout {
			t.Errorf("%s: %v, %v", name, c.l.Interval(), c.l.Timeout())
		}
	}
}

func TestWhatAnInstanceDoesNotSayStaysAsItWas(t *testing.T) {
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

func TestAPlanKeepsWhatItsGroupSaysOfRunning(t *testing.T) {
	g := Group{Name: "g", Revision: 1, Spec: DefaultSpec()}
	g.Spec.Limits, g.Spec.Confine = Limits{Processes: 9, LogMiB: 1}, Confine{User: "games", PrivateTmp: true}
	g.Spec.Container, g.Spec.RCON = Container{Image: "i"}, RCON{Port: "p", Password: "w"}
	g.Spec.Liveness, g.Spec.MaxLifetimeSeconds = Liveness{Check: Check{Type: CheckA2S}, Failures: 5}, 7
	p := Compose(g, Materials{}, 0)
	if p.Limits != g.Spec.Limits || p.Confine != g.Spec.Confine || p.Container.Image != "i" || p.RCON != g.Spec.RCON ||
		p.Liveness != g.Spec.Liveness || p.MaxLifetimeSeconds != 7 {
		t.Errorf("%+v", p)
	}
}
