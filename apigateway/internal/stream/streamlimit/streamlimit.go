// Package streamlimit limits the open streams of a gateway, in total and per user or instance.
//
// Invariants:
//
//   - One user has at most a share of the streams, and never more than half, over all their tokens.
//   - One instance has at most MaxPerInstance. All instances together leave a quarter to users.
package streamlimit

import (
	"cmp"
	"sync"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// MaxPerInstance limits the streams of one instance: it needs one, and briefly a second to reconnect.
const MaxPerInstance = 4

// Holder has a stream: an instance or a user.
type Holder struct {
	Instance fleet.InstanceID
	User     string
}

// HolderOf returns the holder for a credential.
func HolderOf(c account.Credential) Holder {
	if c.Instance != "" {
		return Holder{Instance: c.Instance}
	}
	return Holder{User: c.User}
}

// Limiter counts streams. Create it with New. It is safe for concurrent use.
type Limiter struct {
	size, perUser int

	mu        sync.Mutex
	inUse     int
	instances int
	of        map[Holder]int
}

// DefaultPerUser is the default limit of one user's streams of a kind.
const DefaultPerUser = 100

// New returns a Limiter for size streams. One user may have perUser of them but at most half. 0 means
// DefaultPerUser.
func New(size, perUser int) *Limiter {
	return &Limiter{size: size, perUser: max(1, min(cmp.Or(perUser, DefaultPerUser), size/2)), of: map[Holder]int{}}
}

// Available reports whether a holder may open a stream now.
func (l *Limiter) Available(h Holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.available(h)
}

func (l *Limiter) available(h Holder) bool {
	if l.inUse >= l.size {
		return false
	}
	if h.Instance != "" {
		return l.of[h] < MaxPerInstance && l.instances < l.size-l.size/4
	}
	return l.of[h] < l.perUser
}

// Acquire counts a stream until release is called, once. ok is false if the limit is reached.
func (l *Limiter) Acquire(h Holder) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.available(h) {
		return nil, false
	}
	l.inUse++
	l.of[h]++
	if h.Instance != "" {
		l.instances++
	}
	return func() { l.release(h) }, true
}

func (l *Limiter) release(h Holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inUse--
	if h.Instance != "" {
		l.instances--
	}
	if l.of[h]--; l.of[h] == 0 {
		delete(l.of, h)
	}
}

// InUse returns the number of open streams.
func (l *Limiter) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}
