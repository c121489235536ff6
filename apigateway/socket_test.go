package apigateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
)

// dial opens a WebSocket.
func (s *site) dial(path string, header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), await.Patience)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(s.url, "http")+path, &websocket.DialOptions{ //nolint:bodyclose // of an upgrade there is none
		HTTPHeader: header, Subprotocols: protocols, HTTPClient: &http.Client{Transport: &http.Transport{}},
	})
	if err == nil {
		conn.SetReadLimit(1 << 20)
		s.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, resp, err
}

func TestALiveLogIsOpenedBySubprotocolToo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.start("lobby")
	ticket := s.do("POST", "/api/v1/instances/"+string(id)+"/console/ticket", nil).want(200).field("ticket").(string)
	for _, protocols := range [][]string{{"orrery.bearer", s.token}, {"orrery.ticket", ticket}} {
		conn, _, err := s.dial("/api/instances/"+string(id)+"/live-log", nil, protocols...)
		if err != nil {
			t.Fatalf("%s: %v", protocols[0], err)
		}
		_ = conn.CloseNow()
	}
	for _, protocols := range [][]string{nil, {s.token}, {"orrery.bearer", "x"}, {"orrery.ticket", ticket}, {"other", s.token}} {
		if _, resp, err := s.dial("/api/instances/"+string(id)+"/live-log", nil, protocols...); err == nil || resp == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: %v %v", protocols, resp, err)
		}
	}
	// No other route accepts a token this way.
	s.as("").do("GET", "/api/v1/groups", nil, "Sec-WebSocket-Protocol", "orrery.bearer, "+s.token).want(401)
}

func TestARefusedWebSocketIsToldWhyInTheEnvelopeOfItsPath(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Origins = []string{"https://a.example"} })
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := string(s.start("lobby"))
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="}
	with := func(header ...string) []string { return append(append([]string{}, upgrade...), header...) }
	for _, path := range []string{"/api/instances/" + id + "/live-log", "/api/v1/services/" + id + "/attach", "/api/console"} {
		plain := s.do("GET", path, nil).want(http.StatusUpgradeRequired).naming("WebSocket")
		if plain.header.Get("Upgrade") != "websocket" {
			t.Errorf("%s does not say what to upgrade to: %v", path, plain.header)
		}
		s.do("GET", path, nil, with("Origin", "https://b.example")...).want(403).naming("origin")
		s.do("GET", path, nil, with("Sec-WebSocket-Version", "12")...).want(400).naming("13")
		s.do("GET", path, nil, with("Sec-WebSocket-Key", "short")...).want(400).naming("Sec-WebSocket-Key")
	}
}

// frame returns a masked text frame that announces size bytes of payload, with the payload sent.
func frame(final bool, size int, payload string) []byte {
	b := []byte{0x01, 0xfe, byte(size >> 8), byte(size), 0, 0, 0, 0} // the mask changes nothing
	if final {
		b[0] |= 0x80
	}
	return append(b, payload...)
}

func TestALineThatIsCutIsNotTyped(t *testing.T) {
	t.Parallel()
	const whole, cuts = "say whole", 5
	var a *agent
	t.Cleanup(func() { // after the gateway has ended, which waits for its consoles
		a.mu.Lock()
		defer a.mu.Unlock()
		if want := slices.Repeat([]string{whole}, cuts); !slices.Equal(a.typed, want) {
			t.Errorf("typed %.100q, want %q", a.typed, want)
		}
	})
	s := newSite(t)
	a = s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	long := strings.Repeat("x", 600)
	sent := [][]byte{
		frame(true, 30, ""),
		frame(true, 30, "stop when all"),
		frame(true, 600, long[:512]), // as much as is read at once
		frame(false, 9, "stop when"),
		{0x81},
	}
	if len(sent) != cuts {
		t.Fatalf("%d cuts", len(sent))
	}
	for _, part := range sent {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "GET /api/v1/services/%s/attach HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n", lobby.id, s.token)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		if status, err := in.ReadString('\n'); err != nil || !strings.Contains(status, "101") {
			t.Fatalf("%q %v", status, err)
		}
		if _, err := conn.Write(append(frame(true, len(whole), whole), part...)); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, in) // until the gateway has ended the connection
	}
	await.That(t, "the whole lines", func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return await.Unless(len(a.typed) >= cuts, "typed %.100q", a.typed)
	})
}
