package server

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// limitWindow is what rates are counted over.
	limitWindow = time.Minute
	// maxCallers bounds the callers remembered: past it the oldest windows are
	// swept, and if all are young, new callers share one window.
	maxCallers = 65_536
)

// limiter counts requests per caller in fixed windows that begin with the caller's
// first request. A limit of 0 allows everything.
type limiter struct {
	limit int
	now   func() time.Time

	mu      sync.Mutex
	callers map[netip.Addr]*window
}

type window struct {
	began time.Time
	count int
}

func newLimiter(limit int, now func() time.Time) *limiter {
	return &limiter{limit: limit, now: now, callers: map[netip.Addr]*window{}}
}

// allow counts a request. When the limit is exceeded, wait is how long until the
// window ends.
func (l *limiter) allow(ip string) (wait time.Duration, ok bool) {
	if l.limit <= 0 {
		return 0, true
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.window(caller(ip), now)
	if now.Sub(w.began) >= limitWindow {
		w.began, w.count = now, 0
	}
	w.count++
	return limitWindow - now.Sub(w.began), w.count <= l.limit
}

func (l *limiter) window(who netip.Addr, now time.Time) *window {
	if w, ok := l.callers[who]; ok {
		return w
	}
	if len(l.callers) >= maxCallers {
		for k, w := range l.callers {
			if now.Sub(w.began) >= limitWindow {
				delete(l.callers, k)
			}
		}
	}
	if len(l.callers) >= maxCallers {
		who = netip.Addr{} // the shared one
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
