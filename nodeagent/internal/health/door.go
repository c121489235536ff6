package health

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// doorFresh is how long an answer of the gateway counts.
const doorFresh = time.Second

// Door tells whether what servers say of themselves could arrive: the gateway answers
// where they reach it, the node has a session, without which it would not pass
// anything on, and is not revoked, while which it refuses them. One serves all instances
// of an agent.
type Door struct {
	// URL is the gateway's address as servers are told it; empty is a door that is closed.
	URL func() string
	// Session reports whether the node has one.
	Session func() bool
	// Barred reports whether the node is revoked, also where that cannot be told.
	Barred func(context.Context) bool
	// Client asks. It needs no timeout.
	Client *http.Client

	mu   sync.Mutex
	open bool
	at   time.Time
}

// Open reports whether something could arrive now.
func (d *Door) Open(ctx context.Context) bool {
	if !d.Session() || d.URL() == "" {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || time.Since(d.at) > doorFresh {
		open := d.knock(ctx) && !d.barred(ctx)
		if ctx.Err() != nil { // whoever asked has gone, which says nothing of the way
			return false
		}
		d.open, d.at = open, time.Now()
	}
	return d.open
}

func (d *Door) knock(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(d.URL(), "/")+"/livez", nil)
	if err != nil {
		return false
	}
	resp, err := d.Client.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (d *Door) barred(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return d.Barred(ctx)
}
