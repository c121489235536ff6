package fleet

import (
	"bytes"
	"testing"
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

func TestAPlanKeepsWhatItsGroupSaysOfRunning(t *testing.T) {
	g := Group{Name: "g", Revision: 1, Spec: DefaultSpec()}
	g.Spec.Limits, g.Spec.Confine = Limits{Processes: 9, LogMiB: 1}, Confine{User: "games", PrivateTmp: true}
	g.Spec.Container, g.Spec.RCON = Container{Image: "i"}, RCON{Port: "p", Password: "w"}
	g.Spec.Liveness, g.Spec.MaxLifetimeSeconds = Liveness{Check: Check{Type: CheckA2S}, Failures: 5}, 7
	p := Compose(g, nil, 0)
	if p.Limits != g.Spec.Limits || p.Confine != g.Spec.Confine || p.Container.Image != "i" || p.RCON != g.Spec.RCON ||
		p.Liveness != g.Spec.Liveness || p.MaxLifetimeSeconds != 7 {
		t.Errorf("%+v", p)
	}
}
