package server

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// limitWindow is the default window of a limiter.
	limitWindow = time.Minute
	// maxCallers limits the tracked callers. Above it, expired windows are removed. If there are none,
	// new callers share one window.
	maxCallers = 65_536
)

// limiter counts requests per caller in fixed windows that start with the caller's first request. The
// limit may change at any time; 0 is no limit. Each replica allows an equal share of the limit,
// rounded up, so together they may exceed it by at most one request per additional replica.
type limiter[K comparable] struct {
	limit func() int
	now   func() time.Time
	// span is the length of a window.
	span time.Duration
	// replicas returns the number of replicas that share the limit, at least 1.
	replicas func() int

	mu      sync.Mutex
	callers map[K]*window // the zero key is shared by all callers above maxCallers
}

type window struct {
	began time.Time
	count int
}

func newLimiter[K comparable](limit func() int, now func() time.Time, replicas func() int) *limiter[K] {
	return &limiter[K]{limit: limit, now: now, span: limitWindow, replicas: replicas, callers: map[K]*window{}}
}

// per sets the length of the window.
func (l *limiter[K]) per(span time.Duration) *limiter[K] {
	l.span = span
	return l
}

// verdict is the result of counting a request.
type verdict struct {
	// over is true above the limit; wait is the time until the window ends.
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

// caller returns the address that requests are counted by: for IPv6 the /64, which one host owns.
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
