package certificate

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// peerProtocol is an ALPN protocol that only gateways offer. It asks for the certificate of Peer. It is
// never chosen: gateways speak HTTP.
const peerProtocol = "orrery-gateway"

// Peer identifies gateways to each other. They call each other at addresses that the certificate of the
// API is not for, and an authority that signed it may be unknown to them. So all derive one key from the
// cluster secret, and a gateway that proves to have it is one of the cluster.
type Peer struct {
	own    tls.Certificate
	public ed25519.PublicKey
}

// NewPeer derives the key from the cluster secret.
func NewPeer(secret string) (*Peer, error) {
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, "orrery/pki/gateway", ed25519.SeedSize)
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "certificate.NewPeer", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	p := &Peer{public: key.Public().(ed25519.PublicKey)}
	// The validity does not matter, because only the key is compared.
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "orrery gateway"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, p.public, key)
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "certificate.NewPeer", err)
	}
	p.own = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return p, nil
}

// asked reports whether a connection comes from a gateway.
func (p *Peer) asked(hello *tls.ClientHelloInfo) bool {
	return slices.Contains(hello.SupportedProtos, peerProtocol)
}

// Client returns the configuration for connections to other gateways, and to proxies in front of them. It
// accepts gateways of the cluster by their key, and proxies by their name and the authorities of this host.
func (p *Peer) Client() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{peerProtocol, "http/1.1"},
		InsecureSkipVerify: true, // VerifyConnection verifies
		VerifyConnection:   p.verify,
	}
}

func (p *Peer) verify(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]
	if p.public.Equal(leaf.PublicKey) {
		return nil
	}
	if state.ServerName == "" { // an address: crypto/tls does not say which, so it cannot be verified
		return errs.New(errs.Denied, "the server is no gateway of this cluster, and its certificate cannot be verified for an address: set api.url of that gateway to a name")
	}
	chain := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		chain.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: state.ServerName, Intermediates: chain})
	return err
}
