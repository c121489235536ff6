package ports_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ports"
)

// free is a port outside the range of ephemeral ports, so that no other program takes it.
func free(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		if b, err := ports.Probe(port); b == nil && err == nil {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func TestBusyPortHasProtocol(t *testing.T) {
	held := func(protocol string, port int) {
		t.Helper()
		if b := busy(t, port); b.Protocol != protocol || !strings.Contains(b.String(), protocol) {
			t.Errorf("%s: %v", protocol, b)
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

func TestBusyPortNamesProgramAndPID(t *testing.T) {
	self := fmt.Sprintf("(pid %d)", os.Getpid())
	port := free(t)
	tcp, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if b := busy(t, port); b.Leftover() || !strings.HasSuffix(b.By(), self) {
		t.Errorf("held by %q, want one that ends in %q", b.By(), self)
	}
	port = free(t)
	udp, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if b := busy(t, port); b.Leftover() || !strings.HasSuffix(b.By(), self) {
		t.Errorf("held by %q, want one that ends in %q", b.By(), self)
	}
}

func TestBusyPortNamesClient(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	port := free(t)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}}
	client, err := dialer.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	want := fmt.Sprintf("(pid %d), for a connection", os.Getpid())
	if b := busy(t, port); b.Leftover() || !strings.HasSuffix(b.By(), want) {
		t.Errorf("held by %q, want one that ends in %q", b.By(), want)
	}
}

// The node's record need not name a program's clients.
func TestBusyPortOmitsClientsOfServer(t *testing.T) {
	port := free(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 20 {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
	}
	want := regexp.MustCompile(fmt.Sprintf(`^\S+ \(pid %d\)$`, os.Getpid()))
	if b := busy(t, port); !want.MatchString(b.By()) {
		t.Errorf("held by %q", b.By())
	}
}

func TestConcurrentProbesDoNotCollide(t *testing.T) {
	port := free(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := staysFree(port); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A server closes a connection that its client keeps open, like a server that is killed.
func TestLeftoverConnectionsWithoutReuseAddrBlockPort(t *testing.T) {
	for _, reuse := range []int{0, 1} {
		t.Run(fmt.Sprint("SO_REUSEADDR ", reuse), func(t *testing.T) {
			port := free(t)
			option := func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) {
					_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, reuse)
				})
			}
			config := net.ListenConfig{Control: option}
			l, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if b := busy(t, port); b.Leftover() {
				t.Errorf("a server that listens is taken for one that has ended: %v", b)
			}
			_, _ = accepted.Close(), l.Close()
			if reuse == 1 {
				if b, err := ports.Probe(port); b != nil || err != nil {
					t.Errorf("%v, %v", b, err)
				}
				return
			}
			if b := busy(t, port); !b.Leftover() || !strings.Contains(b.String(), "a connection of a program that has ended") {
				t.Errorf("leftover %v: %v", b.Leftover(), b)
			}
			_, _ = client.(*net.TCPConn).SetLinger(0), client.Close() // which resets the connection
			await.That(t, "the port free", func() string {
				b, err := ports.Probe(port)
				return await.Unless(b == nil && err == nil, "%v, %v", b, err)
			})
		})
	}
}

// busy is what uses a port.
func busy(t *testing.T, port int) *ports.Busy {
	t.Helper()
	b, err := ports.Probe(port)
	if b == nil || err != nil {
		t.Fatalf("port %d: %v, %v", port, b, err)
	}
	return b
}

func TestOtherBindErrorIsNotBusy(t *testing.T) {
	before := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := syscall.Rlimit{Cur: 0, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err := ports.Probe(1)
	unseen := ports.Visible()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "too many open files") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(errs.MessageOf(unseen), "tcp_diag") || !strings.Contains(errs.MessageOf(unseen), "too many open files") {
		t.Errorf("a kernel that shows no sockets: %v", unseen)
	}
	if err := ports.Visible(); err != nil {
		t.Errorf("a kernel that shows sockets: %v", err)
	}
}

// A process that is being started holds the agent's files for a moment.
func TestProbedPortIsNotInheritedByChildren(t *testing.T) {
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
	for range 5 { // another program may take one port, but not several in a row
		err := staysFree(free(t))
		if err == nil {
			return
		}
		met = append(met, err)
	}
	t.Fatal(met)
}

// staysFree probes a port many times.
func staysFree(port int) error {
	for n := range 2000 {
		if b, err := ports.Probe(port); b != nil || err != nil {
			return fmt.Errorf("found free %d times, but then: %v, %w", n, b, err)
		}
	}
	return nil
}
