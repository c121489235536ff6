package apigateway

import (
	"context"
	"net/http"
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
