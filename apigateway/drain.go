package apigateway

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// arrivals are the connections that were accepted and whose first request has
// not come to a handler. A server that shuts down hangs up on them, although the
// request may be on its way: so the gateway lets them arrive before it does.
type arrivals struct {
	mu sync.Mutex
	// waiting are these connections, changed is closed and renewed when one leaves, busy are
	// the connections that have a request under way. All guarded by mu.
	waiting, busy map[net.Conn]bool
	changed       chan struct{}
}

// arrivalKey is where a request's context has its connection.
type arrivalKey struct{}

// watchArrivals makes a server, before it serves, tell of its connections.
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

// work says whether a connection has a request under way.
func (a *arrivals) work(c net.Conn, busy bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.busy, c)
	if busy {
		a.busy[c] = true
	}
}

// hurry has nothing more read for the requests under way, and tells how many there are: one
// that waits for its body is answered that it came too late, and others are given up.
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

// wait returns when all have arrived, at the latest after a time: who connected
// and says nothing is not waited for longer.
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
