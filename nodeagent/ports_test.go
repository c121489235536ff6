package nodeagent_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// holdPort is a server on PORT that keeps its connections open. TEST_HOLDS selects its kind. It
// appends a line to the file world when it starts.
func holdPort() int {
	world, err := os.OpenFile("world", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = world.WriteString("started\n")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	address, kind := "127.0.0.1:"+os.Getenv("ORRERY_PORT"), os.Getenv("TEST_HOLDS")
	if kind == "udp" {
		if _, err := net.ListenPacket("udp", address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		select {}
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			if kind == "tcp without SO_REUSEADDR" {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
			}
		})
	}}
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	open := map[net.Conn]bool{} // kept from the garbage collector, which would close them
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		open[c] = true
	}
}

// holder is a plan that runs a server of a kind, see holdPort.
func holder(kind string) fleet.Plan {
	p := server()
	p.Env = map[string]string{"ORRERY_TEST_MODE": "holder", "TEST_HOLDS": kind}
	if kind == "udp" {
		p.Readiness.Type = fleet.CheckNone
	}
	p.Stop.Command, p.OnCrash = "", fleet.CrashRestart
	return p
}

// visit opens a connection to a server and keeps it until the test ends or leave is called. leave
// resets the connection, so that the kernel keeps no leftover.
func visit(t *testing.T, port int) (leave func()) {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	leave = func() { _, _ = c.(*net.TCPConn).SetLinger(0), c.Close() }
	t.Cleanup(leave)
	if _, err := c.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return leave
}

func (s *site) blocked() []fleet.BlockedPort {
	s.t.Helper()
	n, err := store.Get(s.t.Context(), s.store, keys.Node(node))
	if err != nil {
		s.t.Fatal(err)
	}
	return n.BlockedPorts
}

func (s *site) awaitUnblocked() {
	s.t.Helper()
	await.That(s.t, "no blocked port", func() string {
		blocked := s.blocked()
		return await.Unless(len(blocked) == 0, "%+v", blocked)
	})
}

func TestKilledServerRestartsOnItsPort(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"tcp", "tcp without SO_REUSEADDR", "udp"} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t)
			s.start(taking)
			port := freePort(t)
			s.place("aaaaaa", 1, holder(kind), port)
			first := s.awaitState("aaaaaa", 1, fleet.Online)
			var leave []func()
			if kind != "udp" {
				leave = append(leave, visit(t, port), visit(t, port))
			}
			if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if kind == "tcp without SO_REUSEADDR" {
				st := s.await("aaaaaa", "why it waits", func(st fleet.Status) bool { return st.Reason == fleet.ReasonPortReleasing })
				if st.State != fleet.Starting || !strings.Contains(st.Message, "2 connections of a program that has ended") {
					t.Errorf("status %+v", st)
				}
				for _, leave := range leave {
					leave()
				}
			}
			st := s.await("aaaaaa", "the next run", func(st fleet.Status) bool { return st.State.Terminal() || st.State == fleet.Online && st.Restarts > 0 })
			if st.State != fleet.Online || st.Restarts != 1 || st.Generation != 1 {
				t.Errorf("status %+v", st)
			}
			if blocked := s.blocked(); len(blocked) > 0 {
				t.Errorf("the scheduler avoids %+v", blocked)
			}
		})
	}
}

// A new instance may use any port of the range: the scheduler picks another one at once.
func TestNewInstanceDoesNotWaitForLeftovers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	port := freePort(t)
	plan := holder("tcp without SO_REUSEADDR")
	plan.OnCrash, plan.Ports = fleet.CrashReplace, fleet.PortRange{Start: port, End: port + 1}
	s.place("aaaaaa", 1, plan, port)
	first := s.awaitState("aaaaaa", 1, fleet.Online)
	leave := visit(t, port)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.awaitState("aaaaaa", 1, fleet.Crashed)
	s.place("bbbbbb", 1, plan, port)
	st := s.awaitState("bbbbbb", 1, fleet.Failed)
	if st.Reason != fleet.ReasonPortTaken || !strings.Contains(st.Message, "avoids it on this node") {
		t.Errorf("status %+v", st)
	}
	if blocked := s.blocked(); len(blocked) != 1 || blocked[0].Port != port {
		t.Errorf("blocked %+v", blocked)
	}
	leave()
	s.awaitUnblocked()
}

// Two instances have the same port for a moment when an agent restarts a server by itself, and its
// replacement was already decided.
func TestInstanceWaitsForPortOfAnotherInstance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	port := freePort(t)
	plan := holder("tcp")
	plan.Ports = fleet.PortRange{Start: port, End: port + 1}
	s.place("aaaaaa", 1, plan, port)
	s.awaitState("aaaaaa", 1, fleet.Online)
	s.place("bbbbbb", 1, plan, port)
	st := s.await("bbbbbb", "why it waits", func(st fleet.Status) bool { return st.State.Terminal() || st.Reason == fleet.ReasonPortReleasing })
	if st.State != fleet.Preparing || !strings.Contains(st.Message, "starts as soon as the port is free") {
		t.Errorf("status %+v", st)
	}
	s.order("aaaaaa", 1, fleet.OrderStop)
	st = s.await("bbbbbb", "its start", func(st fleet.Status) bool { return st.State.Terminal() || st.State == fleet.Online })
	if st.State != fleet.Online {
		t.Errorf("status %+v", st)
	}
	if blocked := s.blocked(); len(blocked) > 0 {
		t.Errorf("the scheduler avoids %+v", blocked)
	}
}

func TestAgentRestartDuringPortWaitKeepsDirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	port, id := freePort(t), s.id(1)
	s.place(id, 1, holder("tcp without SO_REUSEADDR"), port)
	first := s.awaitState(id, 1, fleet.Online)
	leave := visit(t, port)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await(id, "the wait", func(st fleet.Status) bool { return st.Reason == fleet.ReasonPortReleasing })
	s.stop()
	s.start(taking)
	leave()
	st := s.await(id, "the next run", func(st fleet.Status) bool { return st.State.Terminal() || st.State == fleet.Online })
	if st.State != fleet.Online || st.Restarts != 1 || st.PID == first.PID {
		t.Errorf("status %+v", st)
	}
	if world := s.running(id, "world"); world != "started\nstarted\n" {
		t.Errorf("the world holds %q", world)
	}
}

func TestStopEndsPortWait(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	port := freePort(t)
	plan := holder("tcp without SO_REUSEADDR")
	plan.Static = true
	s.place("aaaaaa", 1, plan, port)
	first := s.awaitState("aaaaaa", 1, fleet.Online)
	visit(t, port)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await("aaaaaa", "the wait", func(st fleet.Status) bool { return st.Reason == fleet.ReasonPortReleasing })
	s.order("aaaaaa", 1, fleet.OrderStop)
	if st := s.awaitState("aaaaaa", 1, fleet.Stopped); st.Reason != fleet.ReasonStopRequested {
		t.Errorf("status %+v", st)
	}
}
