package events

import (
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// maxOfInstance bounds the streams of one instance: it needs one, and for a moment another.
	maxOfInstance = 4
	// fullFor and fullForInstances is when those who found no room are to come again: each
	// try of an instance, of which there are many, has a ticket written.
	fullFor, fullForInstances = 5 * time.Second, time.Minute
)

// holder is who has a stream: an instance, or else a user.
type holder struct {
	instance fleet.InstanceID
	user     string
}

func holderOf(c fleet.Credential) holder {
	if c.Instance != "" {
		return holder{instance: c.Instance}
	}
	return holder{user: c.User}
}

// room counts the streams that are open. Instances never take the last quarter of it, which
// is for people, and one user no more than half.
type room struct {
	size int

	mu        sync.Mutex
	open      int
	instances int
	of        map[holder]int
}

func newRoom(size int) *room { return &room{size: size, of: map[holder]int{}} }

// has reports whether there is a place for a holder now.
func (r *room) has(h holder) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasPlace(h)
}

func (r *room) hasPlace(h holder) bool {
	if r.open >= r.size {
		return false
	}
	if h.instance != "" {
		return r.of[h] < maxOfInstance && r.instances < r.size-r.size/4
	}
	return r.of[h] < max(1, r.size/2)
}

// enter takes a place until leave is called; ok is false when there is none.
func (r *room) enter(h holder) (leave func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasPlace(h) {
		return nil, false
	}
	r.open++
	r.of[h]++
	if h.instance != "" {
		r.instances++
	}
	return func() { r.leave(h) }, true
}

func (r *room) leave(h holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	if h.instance != "" {
		r.instances--
	}
	if r.of[h]--; r.of[h] == 0 {
		delete(r.of, h)
	}
}

// taken is how many places are taken.
func (r *room) taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// full is what a holder is told whom there is no place for.
func full(h holder) wire.Reply {
	r := wire.Reply{
		Status: 429, Code: "TOO_MANY_STREAMS", RetryAfter: fullFor,
		Message: "too many event streams are open, in all or of yours: close some or retry later, with a new ticket",
	}
	if h.instance != "" {
		r.RetryAfter = fullForInstances
	}
	return r
}
