package auth

import (
	"crypto/sha256"
	"sync"
)

// maxProven limits the cached tokens. Above it, tokens are verified again.
const maxProven = 10_000

// proven caches the claims of login tokens whose signature was verified, by hash, because verifying
// takes longer than most responses. It is valid for one ring of keys. Expiry, user and login are
// still checked for each request. A nil proven caches nothing.
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
