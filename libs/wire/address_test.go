package wire_test

import (
	"net"
	"os"
	"testing"

	"github.com/orreryhq/orrery/libs/wire"
)

func TestHostOfUsesHostName(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for listener, want := range map[string]string{
		"127.0.0.1:7000": "127.0.0.1:7000",
		"[fd00::7]:7000": "[fd00::7]:7000",
		"0.0.0.0:7000":   name + ":7000",
		"[::]:7000":      name + ":7000",
	} {
		address, err := net.ResolveTCPAddr("tcp", listener)
		if err != nil {
			t.Fatal(err)
		}
		if got := wire.HostOf(address); got != want {
			t.Errorf("%s: %s, want %s", listener, got, want)
		}
	}
}
