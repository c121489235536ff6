package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Bundle is what a service presents to others, and by which authorities it knows them: one text in PEM
// with its certificate, its private key and the certificates of one or more authorities. Two authorities
// are in it while one replaces the other. A Bundle does not change.
type Bundle struct {
	identity    Identity
	cert        tls.Certificate
	authorities []*x509.Certificate
	pool        *x509.CertPool
}

// NewBundle returns the text of a bundle.
func NewBundle(p Pair, authorities ...[]byte) []byte {
	return bytes.Join(append([][]byte{p.Cert, p.Key}, authorities...), nil)
}

// ParseBundle reads a bundle. Invalid unless it has a private key, the key's certificate with an
// Identity, and authorities, of which one has issued the certificate. Expiry is left to Verify.
func ParseBundle(b []byte) (*Bundle, error) {
	out := &Bundle{pool: x509.NewCertPool()}
	var key []byte
	for rest := b; ; {
		var one *pem.Block
		if one, rest = pem.Decode(rest); one == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return nil, errs.New(errs.Invalid, "the bundle has text that is not PEM: write it again with orrery pki issue")
			}
			break
		}
		switch one.Type {
		case keyBlock:
			if key != nil {
				return nil, errs.New(errs.Invalid, "the bundle has two private keys: keep the one of its certificate")
			}
			key = pem.EncodeToMemory(one)
		case certBlock:
			if err := out.add(one.Bytes); err != nil {
				return nil, err
			}
		default:
			return nil, errs.New(errs.Invalid, "the bundle has a block of type %s: it may have certificates and a private key", one.Type)
		}
	}
	return out, out.complete(key)
}

// add adds a certificate, which is the service's own or an authority's.
func (b *Bundle) add(der []byte) error {
	cert, err := x509.ParseCertificate(der)
	switch {
	case err != nil:
		return errs.WrapAs(errs.Invalid, "pki.ParseBundle", err)
	case cert.IsCA:
		b.authorities = append(b.authorities, cert)
		b.pool.AddCert(cert)
		return nil
	case b.cert.Leaf != nil:
		return errs.New(errs.Invalid, "the bundle has two certificates that are not authorities': %q and %q", b.cert.Leaf.Subject.CommonName, cert.Subject.CommonName)
	}
	b.cert.Leaf, b.cert.Certificate = cert, [][]byte{cert.Raw}
	b.identity, err = IdentityOf(cert)
	return err
}

// complete checks that the parts belong together.
func (b *Bundle) complete(keyText []byte) error {
	switch {
	case b.cert.Leaf == nil:
		return errs.New(errs.Invalid, "the bundle has no certificate of a service: write it with orrery pki issue")
	case keyText == nil:
		return errs.New(errs.Invalid, "the bundle of %s has no private key", b.identity.Path())
	case len(b.authorities) == 0:
		return errs.New(errs.Invalid, "the bundle of %s has no certificate of an authority", b.identity.Path())
	}
	key, err := parseKey(keyText)
	if err != nil {
		return err
	}
	if !key.PublicKey.Equal(b.cert.Leaf.PublicKey) {
		return errs.New(errs.Invalid, "the private key of the bundle does not belong to the certificate of %s", b.identity.Path())
	}
	b.cert.PrivateKey = key
	if slices.ContainsFunc(b.authorities, func(a *x509.Certificate) bool { return b.cert.Leaf.CheckSignatureFrom(a) == nil }) {
		return nil
	}
	return errs.New(errs.Invalid, "no authority in the bundle has issued the certificate of %s: add the authority's own certificate", b.identity.Path())
}

// Identity returns who presents the bundle.
func (b *Bundle) Identity() Identity { return b.identity }

// Certificate returns the certificate with its key, for package tls.
func (b *Bundle) Certificate() *tls.Certificate { return &b.cert }

// Authorities returns the authorities, for package tls.
func (b *Bundle) Authorities() *x509.CertPool { return b.pool }

// Names returns the common names of the authorities.
func (b *Bundle) Names() []string {
	var out []string
	for _, a := range b.authorities {
		out = append(out, a.Subject.CommonName)
	}
	return out
}

// NotBefore is when the certificate becomes valid.
func (b *Bundle) NotBefore() time.Time { return b.cert.Leaf.NotBefore }

// NotAfter is when the certificate expires.
func (b *Bundle) NotAfter() time.Time { return b.cert.Leaf.NotAfter }

// Hosts returns the DNS names and addresses of the certificate.
func (b *Bundle) Hosts() []string {
	out := append([]string{}, b.cert.Leaf.DNSNames...)
	for _, ip := range b.cert.Leaf.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

// Use is what the holder of a certificate does with it.
type Use struct {
	name string
	ext  x509.ExtKeyUsage
}

// Serve and Call are the uses of a certificate in a connection.
var (
	Serve = Use{"to serve", x509.ExtKeyUsageServerAuth}
	Call  = Use{"to call others", x509.ExtKeyUsageClientAuth}
)

// VerifyOwn is Verify for the bundle's own certificate.
func (b *Bundle) VerifyOwn(now time.Time) error {
	for _, use := range []Use{Serve, Call} {
		if _, err := b.Verify([]*x509.Certificate{b.cert.Leaf}, use, now); err != nil {
			return err
		}
	}
	return nil
}

// Verify returns the identity of the one that presented certificates. The error is Unauthenticated, and
// says what is wrong with them, if they are not of one of the bundle's authorities for this use.
func (b *Bundle) Verify(presented []*x509.Certificate, use Use, now time.Time) (Identity, error) {
	if len(presented) == 0 {
		return Identity{}, errs.New(errs.Unauthenticated, "it presented no certificate")
	}
	leaf := presented[0]
	who := fmt.Sprintf("%q", leaf.Subject.CommonName)
	refuse := func(format string, args ...any) (Identity, error) {
		return Identity{}, errs.New(errs.Unauthenticated, "the certificate of "+who+" "+format, args...)
	}
	identity, err := IdentityOf(leaf)
	if err != nil {
		return Identity{}, errs.WrapAs(errs.Unauthenticated, "pki.Verify", err)
	}
	who = identity.Path()
	switch { // before the chain is verified, because these errors are more helpful
	case now.After(leaf.NotAfter):
		return refuse("expired at %s, and the clock of this host says %s: issue a new one, or correct the clock", show(leaf.NotAfter), show(now))
	case now.Before(leaf.NotBefore):
		return refuse("is valid from %s on, and the clock of this host says %s: correct the clock of this host or of the one that issued it", show(leaf.NotBefore), show(now))
	}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: b.pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use.ext}})
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil && slices.ContainsFunc(chains, func(c []*x509.Certificate) bool { return vouchesFor(c[len(c)-1], identity) }):
		return identity, nil
	case err == nil:
		return refuse("is of the authority %q, which is for agents only: issue it with orrery pki issue", leaf.Issuer.CommonName)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return refuse("is of an authority that is not valid at %s: make a new authority, or correct the clock", show(now))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return refuse("may not be used %s", use.name)
	case errors.As(err, &unknown):
		return refuse("is of the authority %q, which this service does not trust: all services need certificates of the same authority", leaf.Issuer.CommonName)
	}
	return refuse("cannot be verified: %v", err)
}

// vouchesFor reports whether an authority may issue a certificate of an identity; see NewNodeAuthority.
func vouchesFor(authority *x509.Certificate, i Identity) bool {
	return len(authority.URIs) == 0 || authority.URIs[0].String() == Identity{Service: i.Service}.String()
}

func show(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Issuer returns the fingerprint of the authority that has issued the certificate.
func (b *Bundle) Issuer() string {
	for _, a := range b.authorities {
		if b.cert.Leaf.CheckSignatureFrom(a) == nil {
			return fingerprint(a)
		}
	}
	return "" // ParseBundle has found one
}

// Trusts reports whether an authority, in PEM, is one of the bundle's.
func (b *Bundle) Trusts(authority []byte) bool {
	cert, err := parseCert(authority)
	return err == nil && slices.ContainsFunc(b.authorities, cert.Equal)
}

// AuthorityCerts returns the certificates of the authorities, in PEM.
func (b *Bundle) AuthorityCerts() (all [][]byte) {
	for _, a := range b.authorities {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: a.Raw}))
	}
	return all
}

// WithAuthorities returns the certificate followed by those of the authorities, for callers that know an
// authority only by its fingerprint; see VerifyIssuer.
func (b *Bundle) WithAuthorities() *tls.Certificate {
	all := b.cert
	all.Certificate = slices.Clone(all.Certificate)
	for _, a := range b.authorities {
		all.Certificate = append(all.Certificate, a.Raw)
	}
	return &all
}

// VerifyIssuer is Verify for a caller that knows the fingerprint of an authority instead of a bundle.
// The one that presented certificates must have presented the authority's too.
func VerifyIssuer(presented []*x509.Certificate, authority string, use Use, now time.Time) (Identity, error) {
	for _, c := range presented[min(1, len(presented)):] {
		if c.IsCA && fingerprint(c) == authority {
			b := &Bundle{pool: x509.NewCertPool(), authorities: []*x509.Certificate{c}}
			b.pool.AddCert(c)
			return b.Verify(presented, use, now)
		}
	}
	return Identity{}, errs.New(errs.Unauthenticated, "the server does not have a certificate of the expected authority: it is not a gateway of this cluster, or the authority was replaced")
}
