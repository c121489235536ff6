// Package pki makes and verifies X.509 certificates: a certificate authority, the certificates
// that it issues to servers and clients, and the bundles by which services know each other.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Backdate is how long before its issue a certificate becomes valid, for hosts whose clocks are a little
// behind.
const Backdate = 5 * time.Minute

// Pair is a certificate and its private key, both in PEM.
type Pair struct{ Cert, Key []byte }

// Authority is a certificate authority. It is safe for concurrent use.
type Authority struct {
	pair Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a self-signed authority that is valid until a time.
func NewAuthority(name string, now, until time.Time) (*Authority, error) {
	return newAuthority(name, now, until)
}

// NewNodeAuthority makes an authority for agents: Bundle.Verify accepts no other certificate of it. Its
// key may therefore be on a host that is less safe than that of a NewAuthority.
func NewNodeAuthority(name string, now, until time.Time) (*Authority, error) {
	return newAuthority(name, now, until, Identity{Service: Agent}.uri())
}

func newAuthority(name string, now, until time.Time, only ...*url.URL) (*Authority, error) {
	t, err := template(name, now, until)
	if err != nil {
		return nil, errs.Wrap("pki.NewAuthority", err)
	}
	t.URIs = only
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	key, err := newKey()
	if err != nil {
		return nil, errs.Wrap("pki.NewAuthority", err)
	}
	cert, err := sign(t, t, &key.PublicKey, key)
	if err != nil {
		return nil, errs.Wrap("pki.NewAuthority", err)
	}
	own, err := pair(cert, key)
	if err != nil {
		return nil, errs.Wrap("pki.NewAuthority", err)
	}
	return LoadAuthority(own)
}

// LoadAuthority reads an authority from what its Pair returned. Invalid when the
// pair is not one certificate of an authority with its own key.
func LoadAuthority(p Pair) (*Authority, error) {
	cert, err := parseCert(p.Cert)
	if err != nil {
		return nil, errs.Wrap("pki.LoadAuthority", err)
	}
	key, err := parseKey(p.Key)
	if err != nil {
		return nil, errs.Wrap("pki.LoadAuthority", err)
	}
	switch {
	case !cert.IsCA:
		return nil, errs.New(errs.Invalid, "the certificate %q is not one of a certificate authority", cert.Subject.CommonName)
	case !key.PublicKey.Equal(cert.PublicKey):
		return nil, errs.New(errs.Invalid, "the private key does not belong to the certificate %q", cert.Subject.CommonName)
	}
	return &Authority{pair: p, cert: cert, key: key}, nil
}

// Pair is the authority's own certificate and key.
func (a *Authority) Pair() Pair { return a.pair }

// VouchesFor reports whether Bundle.Verify accepts certificates of an identity that the authority issues.
func (a *Authority) VouchesFor(i Identity) bool { return vouchesFor(a.cert, i) }

// Until is when the authority's certificate expires.
func (a *Authority) Until() time.Time { return a.cert.NotAfter }

// Request says what certificate to issue. At least one of Server and Client is set.
type Request struct {
	// Name is the common name. etcd takes it as the user name of a client.
	Name string
	// Hosts are the DNS names and IP addresses of a server.
	Hosts []string
	// Identity is who holds the certificate. The zero value adds none.
	Identity Identity
	// Server and Client say how the holder may use the certificate.
	Server, Client bool
	// Now is when it becomes valid, Until when it expires: at the latest with the authority.
	Now, Until time.Time
}

// Issue makes a key and signs its certificate.
func (a *Authority) Issue(r Request) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, errs.Wrap("pki.Issue", err)
	}
	cert, err := a.Sign(r, &key.PublicKey)
	if err != nil {
		return Pair{}, errs.Wrap("pki.Issue", err)
	}
	return pair(cert, key)
}

// Sign signs a certificate for a key, and returns it in PEM.
func (a *Authority) Sign(r Request, key *ecdsa.PublicKey) ([]byte, error) {
	until := r.Until
	if until.After(a.Until()) {
		until = a.Until()
	}
	t, err := template(r.Name, r.Now, until)
	if err != nil {
		return nil, errs.Wrap("pki.Sign", err)
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	if r.Server {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if r.Identity != (Identity{}) {
		if err := r.Identity.Validate(); err != nil {
			return nil, errs.Wrap("pki.Sign", err)
		}
		t.URIs = []*url.URL{r.Identity.uri()}
	}
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return sign(t, a.cert, key, a.key)
}

// template is what all certificates have in common.
func template(name string, now, until time.Time) (*x509.Certificate, error) {
	if !until.After(now) {
		return nil, errs.New(errs.Invalid, "the certificate %q would have expired when it is made: at %v", name, until)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "pki.template", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-Backdate), NotAfter: until,
	}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return key, errs.WrapAs(errs.Internal, "pki.newKey", err)
}

func sign(t, parent *x509.Certificate, key *ecdsa.PublicKey, signer *ecdsa.PrivateKey) ([]byte, error) {
	cert, err := x509.CreateCertificate(rand.Reader, t, parent, key, signer)
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "pki.sign", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: cert}), nil
}

func pair(cert []byte, key *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, errs.WrapAs(errs.Internal, "pki.pair", err)
	}
	return Pair{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})}, nil
}

const certBlock, keyBlock = "CERTIFICATE", "PRIVATE KEY"

// ParsePair reads a certificate and its key from one text. Invalid unless it has exactly one of each.
func ParsePair(b []byte) (Pair, error) {
	var p Pair
	for rest := b; ; {
		var one *pem.Block
		if one, rest = pem.Decode(rest); one == nil {
			break
		}
		switch text := pem.EncodeToMemory(one); {
		case one.Type == certBlock && p.Cert == nil:
			p.Cert = text
		case one.Type == keyBlock && p.Key == nil:
			p.Key = text
		default:
			return Pair{}, errs.New(errs.Invalid, "want one certificate and one private key in PEM, found another block of type %s", one.Type)
		}
	}
	if p.Cert == nil || p.Key == nil {
		return Pair{}, errs.New(errs.Invalid, "want one certificate and one private key in PEM, found %s", foundOf(p))
	}
	return p, nil
}

func foundOf(p Pair) string {
	switch {
	case p.Cert != nil:
		return "no private key"
	case p.Key != nil:
		return "no certificate"
	}
	return "neither"
}

func parseCert(b []byte) (*x509.Certificate, error) {
	der, err := block(b, certBlock)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, errs.WrapAs(errs.Invalid, "pki.parseCert", err)
}

func parseKey(b []byte) (*ecdsa.PrivateKey, error) {
	der, err := block(b, keyBlock)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errs.WrapAs(errs.Invalid, "pki.parseKey", err)
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errs.New(errs.Invalid, "the private key is a %T, not an ECDSA key", key)
	}
	return own, nil
}

func block(b []byte, kind string) ([]byte, error) {
	p, rest := pem.Decode(b)
	if p == nil || p.Type != kind || len(rest) > 0 {
		return nil, errs.New(errs.Invalid, "want exactly one PEM block of type %s", kind)
	}
	return p.Bytes, nil
}

// AuthorityCert returns the certificate of an authority from a text that may have its key too. Invalid if
// the text has no certificate of an authority, or several certificates.
func AuthorityCert(text []byte) ([]byte, error) {
	var found []byte
	for rest := text; ; {
		var one *pem.Block
		if one, rest = pem.Decode(rest); one == nil {
			break
		}
		if one.Type != certBlock {
			continue
		}
		if found != nil {
			return nil, errs.New(errs.Invalid, "want one certificate of an authority, found several")
		}
		found = pem.EncodeToMemory(one)
	}
	if found == nil {
		return nil, errs.New(errs.Invalid, "want one certificate of an authority in PEM, found none")
	}
	cert, err := parseCert(found)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errs.New(errs.Invalid, "the certificate %q is not one of a certificate authority", cert.Subject.CommonName)
	}
	return found, nil
}
