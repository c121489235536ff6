package fleet

import (
	"bytes"
	"testing"
	"time"
)

func TestDatagramEscapes(t *testing.T) {
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

func TestLivenessDefaults(t *testing.T) {
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
