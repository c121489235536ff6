package enroll

import (
	"time"

	"github.com/orreryhq/orrery/libs/pki"
)

// Issuer issues certificates that are valid for Life.
type Issuer struct {
	Authority *pki.Authority
	Life      time.Duration
	// Bundle has the authorities that the holders shall trust.
	Bundle func() *pki.Bundle
	Now    func() time.Time
}

// Issue returns a certificate for the key of a pki.SigningRequest. Nothing else of the request counts.
func (i Issuer) Issue(who pki.Identity, csr []byte) (out Certificate, err error) {
	key, err := pki.RequestedKey(csr)
	if err != nil {
		return out, err
	}
	now := i.Now()
	out.Certificate, err = i.Authority.Sign(pki.Request{
		Name: who.Path(), Identity: who, Server: true, Client: true, Now: now, Until: now.Add(i.Life),
	}, key)
	out.Authorities = i.Bundle().AuthorityCerts()
	return out, err
}
