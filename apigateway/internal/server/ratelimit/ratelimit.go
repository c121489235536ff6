// Package ratelimit counts the requests of callers in fixed time windows.
package ratelimit

import (
	"maps"
	"sync"
	"time"
)

// maxCallers limits the tracked callers. Above it, expired windows are removed. If none has
// expired, new callers share one window.
const maxCallers = 65_536

// Limiter counts requests per caller in fixed windows that start with the caller's first request. It is
// safe for concurrent use.
type Limiter[K comparable] struct {
	cfg Config

	mu      sync.Mutex
	callers map[K]*window // the zero key is shared by all callers above maxCallers
}

// Config describes a limit.
type Config struct {
	// Limit is the number of requests in a window. It may change at any time; 0 is no limit.
	Limit func() int
	// Window is the length of a window.
	Window time.Duration
	Now    func() time.Time
	// Replicas returns the number of replicas that share the limit, at least 1; nil is always 1. Each
	// allows an equal share, rounded up, so together they may exceed the limit by at most one request per
	// additional replica.
	Replicas func() int
}

type window struct {
	began time.Time
	count int
}

// New returns a Limiter.
func New[K comparable](cfg Config) *Limiter[K] {
	if cfg.Replicas == nil {
		cfg.Replicas = func() int { return 1 }
	}
	return &Limiter[K]{cfg: cfg, callers: map[K]*window{}}
}

// Allow counts a request. ok is false above the limit; wait is the time until the window ends.
func (l *Limiter[K]) Allow(caller K) (wait time.Duration, ok bool) {
	limit := l.cfg.Limit()
	if limit <= 0 {
		return 0, true
	}
	now, n := l.cfg.Now(), l.cfg.Replicas()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.window(caller, now)
	if now.Sub(w.began) >= l.cfg.Window {
		w.began, w.count = now, 0
	}
	w.count++
	return l.cfg.Window - now.Sub(w.began), w.count <= (limit+n-1)/n
}

func (l *Limiter[K]) window(caller K, now time.Time) *window {
	if w, ok := l.callers[caller]; ok {
		return w
	}
	if len(l.callers) >= maxCallers {
		maps.DeleteFunc(l.callers, func(_ K, w *window) bool { return now.Sub(w.began) >= l.cfg.Window })
	}
	if len(l.callers) >= maxCallers {
		var shared K
		caller = shared
		if w, ok := l.callers[caller]; ok {
			return w
		}
	}
	w := &window{began: now}
	l.callers[caller] = w
	return w
}
