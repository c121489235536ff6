package rcon

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server listens for one connection and serves it.
func server(t *testing.T, serve func(*session)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		serve(&session{conn: c, r: bufio.NewReader(c)})
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// console is a server with a password that answers what answer says in parts.
func console(t *testing.T, answer func(command string) []string) string {
	return server(t, func(s *session) {
		id, kind, password, err := s.receive()
		if err != nil || kind != kindLogin {
			return
		}
		_ = s.send(id, kindAnswer, "") // as Source's servers do
		if password != "secret" {
			_ = s.send(idRefused, kindCommand, "")
			return
		}
		_ = s.send(id, kindCommand, "")
		for {
			id, kind, text, err := s.receive()
			switch {
			case err != nil:
				return
			case s.r.Buffered() > 0: // two packets at once: Minecraft's server leaves
				return
			case kind != kindCommand:
				_ = s.send(id, kindAnswer, "Unknown request 0")
				continue
			}
			for _, part := range answer(text) {
				_ = s.send(id, kindAnswer, part)
			}
		}
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestRunReturnsAnswer(t *testing.T) {
	long := []string{strings.Repeat("a", 4096), strings.Repeat("b", 4096), "end"}
	for _, parts := range [][]string{{"There are 0 players"}, {""}, long} {
		address := console(t, func(command string) []string {
			if command != `say "$HOME"; \n ^A` {
				return []string{"got " + command}
			}
			return parts
		})
		got, err := Run(within(t, 10*time.Second), address, "secret", `say "$HOME"; \n ^A`)
		if want := strings.Join(parts, ""); err != nil || got.Text != want || got.Incomplete {
			t.Errorf("%d bytes, incomplete %v, %v, want %d", len(got.Text), got.Incomplete, err, len(want))
		}
	}
}

func TestRunReturnsIncompleteAnswer(t *testing.T) {
	part := strings.Repeat("a", 4096)
	after := func(rest func(s *session)) string {
		return server(t, func(s *session) {
			_, _, _, _ = s.receive()
			_ = s.send(idLogin, kindCommand, "")
			_, _, _, _ = s.receive()
			rest(s)
		})
	}
	cases := []struct {
		rule, address, want string
		patience            time.Duration
	}{
		{"no answer", after(func(s *session) { _, _ = s.r.ReadByte() }), "", 100 * time.Millisecond},
		{"connection ends", after(func(*session) {}), "", 10 * time.Second},
		{"connection ends within the answer", after(func(s *session) { _ = s.send(idCommand, kindAnswer, part) }), part, 10 * time.Second},
		{"end marker is not answered", after(func(s *session) {
			_ = s.send(idCommand, kindAnswer, part)
			_ = s.send(idCommand, kindAnswer, "end")
			_, _, _, _ = s.receive()
			_, _ = s.r.ReadByte()
		}), part + "end", 100 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			got, err := Run(within(t, c.patience), c.address, "secret", "list")
			if err != nil || got.Text != c.want || !got.Incomplete {
				t.Errorf("%d bytes of %d, incomplete %v, %v", len(got.Text), len(c.want), got.Incomplete, err)
			}
		})
	}
}

func TestRunErrors(t *testing.T) {
	echo := func(command string) []string { return []string{command} }
	closed := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	cases := []struct {
		rule, address, password, command string
		kind                             errs.Kind
	}{
		{"nobody listens", closed(), "secret", "list", errs.Unavailable},
		{"another password", console(t, echo), "guess", "list", errs.Denied},
		{"too long", closed(), "secret", strings.Repeat("x", MaxCommand+1), errs.Invalid},
		{"mute", server(t, func(s *session) { _, _ = s.r.ReadBytes(0xff) }), "secret", "list", errs.Unavailable},
		{"connection closed at once", server(t, func(s *session) { _, _, _, _ = s.receive() }), "secret", "list", errs.Unavailable},
		{"no remote console", server(t, func(s *session) {
			_, _, _, _ = s.receive()
			_, _ = s.conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_, _ = s.r.ReadByte()
		}), "secret", "list", errs.Conflict},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			patience := 10 * time.Second
			if c.rule == "mute" {
				patience = 50 * time.Millisecond
			}
			if _, err := Run(within(t, patience), c.address, c.password, c.command); !errs.Is(err, c.kind) {
				t.Errorf("%v (%v)", err, errs.KindOf(err))
			}
		})
	}
}
