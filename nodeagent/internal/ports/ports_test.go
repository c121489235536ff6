package ports_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/ports"
)

func TestAHeldPortIsNamedWithItsProtocol(t *testing.T) {
	tcp, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for protocol, port := range map[string]int{"TCP": tcp.Addr().(*net.TCPAddr).Port, "UDP": udp.LocalAddr().(*net.UDPAddr).Port} {
		if err := ports.Free(port); !errs.Is(err, errs.Exhausted) || !strings.Contains(errs.MessageOf(err), protocol) {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

func TestAwaitTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := ports.AwaitTCP(t.Context(), port, nil); err != nil {
		t.Errorf("an open port: %v", err)
	}
	_ = l.Close()
	gone := make(chan struct{})
	close(gone)
	if err := ports.AwaitTCP(t.Context(), port, gone); !errs.Is(err, errs.Canceled) {
		t.Errorf("a server that ended: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ports.AwaitTCP(ctx, port, nil); !errs.Is(err, errs.Canceled) {
		t.Errorf("a caller that gave up: %v", err)
	}
}
