package nodeagent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// local is a client of the agent's socket.
func (s *site) local() *client.Local { return client.NewLocal(s.dir) }

// awaitLocal waits until the agent shows an instance as wanted.
func (s *site) awaitLocal(id fleet.InstanceID, what string, ok func(client.Instance) bool) client.Instance {
	s.t.Helper()
	var last client.Instance
	await.That(s.t, what, func() string {
		i, err := s.local().Instance(s.t.Context(), id)
		last = i
		return await.Unless(err == nil && ok(i), "%+v, %v", i, err)
	})
	return last
}

func (s *site) awaitAgent(what string, ok func(client.Agent) bool) client.Agent {
	s.t.Helper()
	var last client.Agent
	await.That(s.t, what, func() string {
		a, err := s.local().Agent(s.t.Context())
		last = a
		return await.Unless(err == nil && ok(a), "%+v, %v", a, err)
	})
	return last
}

func TestLocalSocketIsForOwnerOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	fi, err := os.Stat(filepath.Join(s.dir, client.SocketName))
	if err != nil || fi.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket %v, %v", fi.Mode(), err)
	}
	s.stop()
	if exists(filepath.Join(s.dir, client.SocketName)) {
		t.Error("an agent that left has left its socket")
	}
	if _, err := s.local().Agent(t.Context()); !errors.Is(err, client.ErrNoAgent) || !strings.Contains(errs.MessageOf(err), s.dir) {
		t.Errorf("without an agent: %v", err)
	}
}

func TestSocketOfDeadAgentIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kill := s.spawn()
	s.awaitAgent("the agent", func(client.Agent) bool { return true })
	kill()
	if _, err := s.local().Agent(t.Context()); !errors.Is(err, client.ErrNoAgent) || !strings.Contains(errs.MessageOf(err), "left from an agent that died") {
		t.Errorf("a dead agent's socket: %v", err)
	}
	half := filepath.Join(s.dir, "agent.sock.new-1")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	s.start(taking)
	if a, err := s.local().Agent(t.Context()); err != nil || a.PID != os.Getpid() || exists(half) {
		t.Errorf("agent %+v, %v; half made socket there: %v", a, err, exists(half))
	}
}

func TestSocketWorksInDeepDirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dir = filepath.Join(s.dir, strings.Repeat("deep/", 40), "node")
	s.start(taking)
	if a, err := s.local().Agent(t.Context()); err != nil || a.DataDir != s.dir {
		t.Errorf("agent %+v, %v", a, err)
	}
}

func TestInvalidLocalRequestIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.online(s.id(0), basic("sleep 1000"))
	cases := []struct {
		rule, method, path, body string
		status                   int
		says                     string
	}{
		{"no JSON", "POST", "/v1/stop", "stop it", 400, "not valid JSON"},
		{"an unknown field", "POST", "/v1/stop", `{"evrything":true}`, 400, "evrything"},
		{"nothing is named", "POST", "/v1/stop", `{}`, 422, "exactly one"},
		{"more than one way", "POST", "/v1/stop", `{"all":true,"group":"lobby"}`, 422, "exactly one"},
		{"one of several is unknown", "POST", "/v1/stop", `{"instances":["` + string(s.id(0)) + `","zzzzzz"]}`, 404, "zzzzzz"},
		{"an unknown group", "POST", "/v1/stop", `{"group":"arena"}`, 404, "arena"},
		{"too large", "POST", "/v1/stop", `{"group":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "larger than"},
		{"no line", "POST", "/v1/instances/" + string(s.id(0)) + "/console", `{}`, 422, "line"},
		{"an unknown path", "GET", "/v2/../etc/passwd", "", 404, ""},
		{"another method", "DELETE", "/v1/instances/" + string(s.id(0)), "", 404, "no route"},
		{"no number", "GET", "/v1/instances/" + string(s.id(0)) + "/log?lines=many", "", 422, "lines"},
	}
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.dir, client.SocketName))
	}}}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://agent"+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := h.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b := make([]byte, 4096)
			n, _ := resp.Body.Read(b)
			if resp.StatusCode != c.status || !strings.Contains(string(b[:n]), c.says) {
				t.Errorf("%d %s, want %d with %q", resp.StatusCode, b[:n], c.status, c.says)
			}
		})
	}
	garbage, err := net.Dial("unix", filepath.Join(s.dir, client.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	if _, err := garbage.Write([]byte("\x16\x03\x01 is this HTTP?\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if n, err := garbage.Read(b); err != nil || !strings.Contains(string(b[:n]), "400") {
		t.Errorf("answer to garbage: %q, %v", b[:n], err)
	}
	if i, err := s.local().Instance(t.Context(), s.id(0)); err != nil || i.State != fleet.Online {
		t.Errorf("afterwards %+v, %v", i, err)
	}
}

func TestLocalStopIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.place(s.id(0), 1, basic("sleep 1000"), 0)
	s.place(s.id(1), 1, basic("trap '' TERM; while :; do sleep 1; done"), 0)
	s.awaitState(s.id(0), 1, fleet.Online)
	s.awaitState(s.id(1), 1, fleet.Online)
	answer, err := s.local().Stop(t.Context(), client.Stop{Group: "lobby", Force: true})
	if err != nil || len(answer.Instances) != 2 || !strings.Contains(answer.Note, "at once") {
		t.Fatalf("answer %+v, %v", answer, err)
	}
	for _, id := range []fleet.InstanceID{s.id(0), s.id(1)} {
		st := s.awaitState(id, 1, fleet.Stopped)
		if st.Reason != fleet.ReasonStoppedLocally || !strings.Contains(st.Message, fmt.Sprintf("uid %d", os.Getuid())) {
			t.Errorf("status %+v", st)
		}
	}
	again, err := s.local().Stop(t.Context(), client.Stop{All: true})
	if err != nil || len(again.Instances) != 0 {
		t.Errorf("what has ended: %+v, %v", again, err)
	}
}

func TestUnjournalledLocalStopFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	for n := range 3 {
		s.place(s.id(n), 1, basic("sleep 1000"), 0)
		s.awaitState(s.id(n), 1, fleet.Online)
	}
	for n := range 2 {
		entry := s.entryPath(s.id(n))
		if err := errors.Join(os.Remove(entry), os.Mkdir(entry+".tmp", 0o700)); err != nil { // blocks writes of the entry
			t.Fatal(err)
		}
	}
	if answer, err := s.local().Stop(t.Context(), client.Stop{Instances: []fleet.InstanceID{s.id(0)}}); !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "not be journalled") {
		t.Errorf("answer %+v, %v", answer, err)
	}
	answer, err := s.local().Stop(t.Context(), client.Stop{Instances: []fleet.InstanceID{s.id(1), s.id(2)}})
	if err != nil || len(answer.Instances) != 1 || answer.Instances[0].ID != s.id(2) || len(answer.Problems) != 1 || answer.Problems[0].ID != s.id(1) {
		t.Errorf("answer %+v, %v", answer, err)
	}
	for n := range 3 { // the action continues regardless
		s.awaitState(s.id(n), 1, fleet.Stopped)
	}
}

func killed(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
