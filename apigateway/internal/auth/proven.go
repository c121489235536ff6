package auth

import (
	"crypto/sha256"
	"sync"
)

// maxProven bounds the tokens that are remembered; past it they are checked anew.
const maxProven = 10_000

// proven remembers what tokens of logins say whose signature and form were right, by their
// hashes: to check that again takes longer than most answers. It holds for the keys it was
// checked with. Whether such a token is good now, its times, its user and its login, is
// asked each time. A nil one remembers nothing.
type proven struct {
	mu sync.RWMutex
	by map[[sha256.Size]byte]proof
}

type proof struct {
	claims
	keys *ring
}

func newProven() *proven { return &proven{by: map[[sha256.Size]byte]proof{}} }

func (p *proven) get(token string, keys *ring) (claims, bool) {
	if p == nil {
		return claims{}, false
	}
	sum := sha256.Sum256([]byte(token))
	p.mu.RLock()
	defer p.mu.RUnlock()
	found, ok := p.by[sum]
	return found.claims, ok && found.keys == keys
}

func (p *proven) put(token string, keys *ring, c claims) {
	if p == nil {
		return
	}
	sum := sha256.Sum256([]byte(token))
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.by) >= maxProven {
		clear(p.by)
	}
	p.by[sum] = proof{claims: c, keys: keys}
}
