package auth

import (
	"crypto/sha256"
	"sync"
)

// maxCachedTokens limits the cached tokens. Above it, tokens are verified again.
const maxCachedTokens = 10_000

// tokenCache caches the claims of login tokens whose signature was verified, by hash, because verifying
// takes longer than most responses. It is valid for one ring of keys. Expiry, user and login are
// still checked for each request. The figure get_per_s shows what it gains.
type tokenCache struct {
	mu sync.RWMutex
	by map[[sha256.Size]byte]cachedToken
}

type cachedToken struct {
	claims
	keys *ring
}

func newTokenCache() *tokenCache { return &tokenCache{by: map[[sha256.Size]byte]cachedToken{}} }

func (p *tokenCache) get(token string, keys *ring) (claims, bool) {
	sum := sha256.Sum256([]byte(token))
	p.mu.RLock()
	defer p.mu.RUnlock()
	found, ok := p.by[sum]
	return found.claims, ok && found.keys == keys
}

func (p *tokenCache) put(token string, keys *ring, c claims) {
	sum := sha256.Sum256([]byte(token))
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.by) >= maxCachedTokens {
		clear(p.by)
	}
	p.by[sum] = cachedToken{claims: c, keys: keys}
}
