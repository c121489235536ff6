package server

import (
	"testing"

	"github.com/orreryhq/orrery/libs/wire"
)

func TestAHostCountsAsOneWhateverItsAddresses(t *testing.T) {
	same := [][2]string{
		{"2001:db8::1", "2001:db8::ffff:1:2:3"}, {"::ffff:10.0.0.1", "10.0.0.1"}, {"fe80::1%eth0", "fe80::2%eth1"}, {"nonsense", ""},
	}
	for _, pair := range same {
		if callerAddress(pair[0]) != callerAddress(pair[1]) {
			t.Errorf("%v count apart", pair)
		}
	}
	if callerAddress("10.0.0.1") == callerAddress("10.0.0.2") || callerAddress("2001:db8::1") == callerAddress("2001:db8:0:1::1") {
		t.Error("strangers count as one")
	}
}

func TestDialectOf(t *testing.T) {
	for path, want := range map[string]wire.Dialect{
		"/": wire.V1, "/livez": wire.V1, "/api/v1": wire.V1, "/api/v1/groups": wire.V1, "/api/plugin/ready": wire.V1, "/api/proxy/x": wire.V1,
		"/api/v1x": wire.Universe, "/api/instances": wire.Universe, "/api/": wire.Universe, "/api": wire.V1, "/apix": wire.V1,
	} {
		if got := DialectOf(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a b\r\nSet-Cookie: x")
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s)
		if len(got) > maxCorrelationID || clean(got) != got {
			t.Errorf("%q became %q", s, got)
		}
		for _, r := range got {
			if r <= ' ' || r > '~' {
				t.Errorf("%q became %q", s, got)
			}
		}
	})
}
