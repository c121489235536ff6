package program_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/program"
)

func TestAnAddressThatOtherHostsCannotReachIsDetected(t *testing.T) {
	for _, c := range []struct {
		listen, advertised, etcd string
		onlyThisHost             bool
	}{
		{"127.0.0.1:0", "", "http://127.0.0.1:2379", false},
		{"127.0.0.1:0", "", "localhost:2379", false},
		{"127.0.0.1:0", "", "unix:///data/etcd-access/etcd.sock", false},
		{"127.0.0.1:0", "", "http://10.0.0.1:2379", true},
		{"[::1]:7000", "", "10.0.0.1:2379", true},
		{":7000", "", "http://10.0.0.1:2379", false},
		{"10.0.0.2:7000", "", "http://10.0.0.1:2379", false},
		{"127.0.0.1:7000", "http://10.0.0.2:7000", "http://10.0.0.1:2379", false},
		{":7000", "http://localhost:7000", "http://10.0.0.1:2379", true},
	} {
		if got := program.OnlyThisHost(c.listen, c.advertised, []string{c.etcd}); got != c.onlyThisHost {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
