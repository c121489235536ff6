package apigateway

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// arrivals tracks accepted connections whose first request has not reached a handler. A server that
// shuts down closes them although a request may be on its way, so the gateway waits for them first.
type arrivals struct {
	mu sync.Mutex
	// waiting has these connections; changed is closed and renewed when one leaves. busy has the
	// connections with a request in progress. All are guarded by mu.
	waiting, busy map[net.Conn]bool
	changed       chan struct{}
}

// arrivalKey is the context key of a request's connection.
type arrivalKey struct{}

// watchArrivals tracks a server's connections. Call it before the server starts.
func watchArrivals(s *http.Server) *arrivals {
	a := &arrivals{waiting: map[net.Conn]bool{}, busy: map[net.Conn]bool{}, changed: make(chan struct{})}
	handler := s.Handler
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, arrivalKey{}, c) }
	s.ConnState = func(c net.Conn, state http.ConnState) {
		a.work(c, state == http.StateActive)
		switch state {
		case http.StateNew:
			a.mu.Lock()
			a.waiting[c] = true
			a.mu.Unlock()
		case http.StateClosed, http.StateHijacked:
			a.arrived(c)
		case http.StateActive, http.StateIdle: // the handler tells
		}
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(arrivalKey{}).(net.Conn); ok {
			a.arrived(c)
		}
		handler.ServeHTTP(w, r)
	})
	return a
}

// work records whether a connection has a request in progress.
func (a *arrivals) work(c net.Conn, busy bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.busy, c)
	if busy {
		a.busy[c] = true
	}
}

// hurry stops reading the bodies of requests in progress and returns their number. A request that
// waits for its body gets an error response; the others are abandoned.
func (a *arrivals) hurry() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.busy {
		_ = c.SetReadDeadline(time.Now()) // the connection is gone if this fails
	}
	return len(a.busy)
}

func (a *arrivals) arrived(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[c] {
		delete(a.waiting, c)
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// wait returns when all connections have sent a request, or after atMost.
func (a *arrivals) wait(atMost time.Duration) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		a.mu.Lock()
		n, changed := len(a.waiting), a.changed
		a.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}
