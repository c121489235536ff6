package server

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// limitWindow is what rates are counted over unless a limiter says otherwise.
	limitWindow = time.Minute
	// maxCallers bounds the callers remembered: past it the oldest windows are
	// swept, and if all are young, new callers share one window.
	maxCallers = 65_536
)

// limiter counts requests per caller in fixed windows that begin with the caller's
// first request. The limit may change at any time; one of 0 allows everything. Each replica
// counts for itself: it allows its share of the limit, so that all of them together allow the
// limit and, since shares are whole, at most one request more for each replica but one.
type limiter[K comparable] struct {
	limit func() int
	now   func() time.Time
	// span is what is counted over.
	span time.Duration
	// replicas is how many share the limit now, 1 or more.
	replicas func() int

	mu      sync.Mutex
	callers map[K]*window // the zero caller's is for all who are too many
}

type window struct {
	began time.Time
	count int
}

func newLimiter[K comparable](limit func() int, now func() time.Time, replicas func() int) *limiter[K] {
	return &limiter[K]{limit: limit, now: now, span: limitWindow, replicas: replicas, callers: map[K]*window{}}
}

// per has a limiter count over another span.
func (l *limiter[K]) per(span time.Duration) *limiter[K] {
	l.span = span
	return l
}

// verdict is what came of a count.
type verdict struct {
	// over is true when the limit was exceeded; then wait is how long until the window ends.
	over bool
	wait time.Duration
}

// allow counts a request.
func (l *limiter[K]) allow(who K) verdict {
	limit := l.limit()
	if limit <= 0 {
		return verdict{}
	}
	now, n := l.now(), l.replicas()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.window(who, now)
	if now.Sub(w.began) >= l.span {
		w.began, w.count = now, 0
	}
	w.count++
	return verdict{over: w.count > (limit+n-1)/n, wait: l.span - now.Sub(w.began)}
}

func (l *limiter[K]) window(who K, now time.Time) *window {
	if w, ok := l.callers[who]; ok {
		return w
	}
	if len(l.callers) >= maxCallers {
		for k, w := range l.callers {
			if now.Sub(w.began) >= l.span {
				delete(l.callers, k)
			}
		}
	}
	if len(l.callers) >= maxCallers {
		var shared K
		who = shared
		if w, ok := l.callers[who]; ok {
			return w
		}
	}
	w := &window{began: now}
	l.callers[who] = w
	return w
}

// caller is who an address counts as: of IPv6 the /64, since a host has all of it.
func caller(ip string) netip.Addr {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return netip.Addr{}
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
