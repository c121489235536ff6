package ports_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/ports"
)

// free is a port outside the range that systems take ports of clients from, so
// that no stranger comes between.
func free(t *testing.T) int {
	t.Helper()
	for range 1000 {
		if port := 10000 + rand.IntN(20000); ports.Free(port) == nil {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func TestAHeldPortIsNamedWithItsProtocol(t *testing.T) {
	held := func(protocol string, port int) {
		t.Helper()
		if err := ports.Free(port); !errs.Is(err, errs.Exhausted) || !strings.Contains(errs.MessageOf(err), protocol) {
			t.Errorf("%s: %v", protocol, err)
		}
	}
	port := free(t)
	tcp, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	held("TCP", port)
	_ = tcp.Close()
	port = free(t)
	udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	held("UDP", port)
	_ = udp.Close()
}

func TestARefusalOfAnotherKindIsNotBlamedOnAStranger(t *testing.T) {
	before := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := syscall.Rlimit{Cur: 0, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	err := ports.Free(1)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "too many open files") {
		t.Errorf("got %v", err)
	}
}

// A process that is being started holds the agent's files for a moment.
func TestAPortThatWasTriedIsFreeThoughProcessesAreStartedMeanwhile(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var met []error
	for range 5 { // a stranger may take one of them, and not one after the other
		err := staysFree(free(t))
		if err == nil {
			return
		}
		met = append(met, err)
	}
	t.Fatal(met)
}

// staysFree asks for a port many times.
func staysFree(port int) error {
	for n := range 2000 {
		if err := ports.Free(port); err != nil {
			return fmt.Errorf("found free %d times, but then: %w", n, err)
		}
	}
	return nil
}
