package trust

import (
	"crypto/sha256"
	"crypto/x509"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
)

// verified has the callers whose certificates the current bundle has verified. A connection may outlive its
// certificate, or the authority that issued it, so each request is checked, and a verification takes longer
// than most requests.
type verified struct {
	mu     sync.Mutex
	bundle *pki.Bundle
	all    map[[sha256.Size]byte]pki.Identity
}

// caller returns who presented certificates. Errors are those of Bundle.Verify.
func (v *verified) caller(b *pki.Bundle, presented []*x509.Certificate, now time.Time) (pki.Identity, error) {
	leaf := presented[0]
	if now.After(leaf.NotAfter) {
		return pki.Identity{}, errs.New(errs.Unauthenticated, "the certificate of %q has expired during the connection: connect again with a new one", leaf.Subject.CommonName)
	}
	sum := sha256.Sum256(leaf.Raw)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bundle != b || len(v.all) >= maxPooled {
		v.bundle, v.all = b, map[[sha256.Size]byte]pki.Identity{}
	}
	if who, ok := v.all[sum]; ok {
		return who, nil
	}
	who, err := b.Verify(presented, pki.Call, now)
	if err == nil {
		v.all[sum] = who
	}
	return who, err
}
