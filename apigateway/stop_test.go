package apigateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// raw sends bytes to the gateway over its own connection.
func (s *site) raw(text string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// upgraded opens a WebSocket whose client sends no frames.
func (s *site) upgraded(path string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	c := s.raw(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n", path, s.token))
	in := bufio.NewReader(c)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("%s: %d", path, r.StatusCode)
	}
	return c, in
}

func TestStalledBodyAndIdleConsolesDoNotBlockShutdown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cfg := s.gateway.cfg
	cfg.View, cfg.Replica, cfg.Metrics, cfg.Records = newUnstartedView(s), "other", nil, nil
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { _ = g.cfg.View.Run(ctx) })
	running.Go(func() { ended <- g.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	select {
	case <-g.Ready():
	case <-time.After(await.Patience):
		t.Fatal("it does not serve")
	}
	other := s.as(s.token)
	other.url = "http://" + g.Addr()
	_, console := other.upgraded("/api/console")
	stalled := other.raw("POST /api/v1/groups HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.token + "\r\nContent-Length: 50\r\n\r\n{")
	other.do("GET", "/readyz", nil).want(200) // connections are accepted in order: the earlier ones are accepted now

	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the end is a failure: %v", err)
		}
	case <-time.After(await.Patience):
		t.Fatal("it does not end")
	}
	if frame, err := io.ReadAll(console); err != nil && !errors.Is(err, io.EOF) || len(frame) < 4 || frame[0] != 0x88 || frame[2] != 0x03 || frame[3] != 0xe9 {
		t.Errorf("the console was told %q, %v", frame, err)
	}
	r, err := http.ReadResponse(bufio.NewReader(stalled), nil)
	if err != nil {
		t.Fatalf("the stalled request has no answer: %v", err)
	}
	defer r.Body.Close()
	if r.StatusCode < 400 || r.StatusCode >= 500 {
		t.Errorf("the stalled request is answered %s", r.Status)
	}
	for _, one := range g.cfg.Records.Last(telemetry.RecordFilter{}, 100) {
		if one.Level == "WARN" && strings.Contains(one.Message, "cut") {
			return
		}
	}
	t.Error("nobody is told that a request was cut")
}

func TestShutdownClosesConsolesWithReason(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := string(s.start("lobby"))
	header := http.Header{"Authorization": {"Bearer " + s.token}}
	var open []*websocket.Conn
	for _, path := range []string{"/api/v1/instances/" + id + "/attach", "/api/instances/" + id + "/live-log", "/api/console"} {
		conn, _, err := s.dial(path, header)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		open = append(open, conn)
	}
	s.stop()
	for n, conn := range open {
		var err error
		for err == nil {
			_, _, err = conn.Read(t.Context())
		}
		if closed, ok := errors.AsType[websocket.CloseError](err); !ok || closed.Code != websocket.StatusGoingAway || closed.Reason == "" {
			t.Errorf("console %d ends with %v", n, err)
		}
	}
}
