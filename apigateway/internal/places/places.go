// Package places counts the streams that a gateway has open, and whose they are: nobody
// takes all of them.
//
// Invariants:
//
//   - One user has no more than a share of the places, half of them at most, whatever tokens
//     they came with.
//   - One instance has few, and all together leave the last quarter to people.
package places

import (
	"cmp"
	"sync"

	"github.com/orreryhq/orrery/libs/fleet"
)

// MaxOfInstance bounds the streams of one instance: it needs one, and for a moment another.
const MaxOfInstance = 4

// Holder is who has a stream: an instance, or else a user.
type Holder struct {
	Instance fleet.InstanceID
	User     string
}

// HolderOf is whom a credential is of.
func HolderOf(c fleet.Credential) Holder {
	if c.Instance != "" {
		return Holder{Instance: c.Instance}
	}
	return Holder{User: c.User}
}

// Places are so many streams. Make them with New; they are safe for concurrent use.
type Places struct {
	size, ofUser int

	mu        sync.Mutex
	taken     int
	instances int
	of        map[Holder]int
}

// DefaultOfUser is how many streams of a kind one user has open unless told otherwise.
const DefaultOfUser = 100

// New has a size of places, of which none is taken. One user has ofUser of them, or half of
// all when that is less; 0 means DefaultOfUser.
func New(size, ofUser int) *Places {
	return &Places{size: size, ofUser: max(1, min(cmp.Or(ofUser, DefaultOfUser), size/2)), of: map[Holder]int{}}
}

// Has reports whether there is a place for a holder now.
func (p *Places) Has(h Holder) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has(h)
}

func (p *Places) has(h Holder) bool {
	if p.taken >= p.size {
		return false
	}
	if h.Instance != "" {
		return p.of[h] < MaxOfInstance && p.instances < p.size-p.size/4
	}
	return p.of[h] < p.ofUser
}

// Take takes a place until leave is called, once; ok is false when there is none.
func (p *Places) Take(h Holder) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.has(h) {
		return nil, false
	}
	p.taken++
	p.of[h]++
	if h.Instance != "" {
		p.instances++
	}
	return func() { p.leave(h) }, true
}

func (p *Places) leave(h Holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if h.Instance != "" {
		p.instances--
	}
	if p.of[h]--; p.of[h] == 0 {
		delete(p.of, h)
	}
}

// Taken is how many places are taken.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
