package health

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// gatewayCacheTime is how long the result of a check of the gateway is cached.
const gatewayCacheTime = time.Second

// Gateway reports whether heartbeats of servers could arrive: the gateway answers at the address
// that servers use, the node has a session, and it is not revoked. Otherwise the gateway would
// reject them. An agent has one for all instances.
type Gateway struct {
	// URL is the gateway's address for servers; empty if there is none.
	URL func() string
	// Session reports whether the node has a session.
	Session func() bool
	// Revoked reports whether the node is revoked or its revocation cannot be read.
	Revoked func(context.Context) bool
	// Client needs no timeout.
	Client *http.Client

	mu   sync.Mutex
	open bool
	at   time.Time
}

// Reachable reports whether a heartbeat could arrive now.
func (g *Gateway) Reachable(ctx context.Context) bool {
	if !g.Session() || g.URL() == "" {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() || time.Since(g.at) > gatewayCacheTime {
		open := g.answers(ctx) && !g.revoked(ctx)
		if ctx.Err() != nil { // the check was canceled
			return false
		}
		g.open, g.at = open, time.Now()
	}
	return g.open
}

func (g *Gateway) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(g.URL(), "/")+"/livez", nil)
	if err != nil {
		return false
	}
	resp, err := g.Client.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (g *Gateway) revoked(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return g.Revoked(ctx)
}
