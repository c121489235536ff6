package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
)

var gateway = pki.Identity{Service: pki.Gateway}

// bundleOf issues a certificate and returns it with the authorities that it trusts.
func bundleOf(t *testing.T, a *pki.Authority, who pki.Identity, trusted ...*pki.Authority) *pki.Bundle {
	t.Helper()
	pair, err := a.Issue(pki.Request{Name: who.Path(), Identity: who, Server: true, Client: true, Now: time.Now(), Until: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	authorities := [][]byte{a.Pair().Cert}
	for _, other := range trusted {
		authorities = append(authorities, other.Pair().Cert)
	}
	b, err := pki.ParseBundle(pki.NewBundle(pair, authorities...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func authorities(t *testing.T) (services, nodes *pki.Authority) {
	t.Helper()
	until := time.Now().Add(24 * time.Hour)
	services, err := pki.NewAuthority("services", time.Now(), until)
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err = pki.NewNodeAuthority("nodes", time.Now(), until); err != nil {
		t.Fatal(err)
	}
	return services, nodes
}

func TestTheAuthorityOfNodesVouchesForNodesOnly(t *testing.T) {
	services, nodes := authorities(t)
	own := bundleOf(t, services, gateway, nodes)
	agent, liar := bundleOf(t, nodes, nodeOne), bundleOf(t, nodes, gateway)
	if who, err := own.Verify([]*x509.Certificate{agent.Certificate().Leaf}, pki.Call, time.Now()); err != nil || who != nodeOne {
		t.Errorf("a node: %v, %v", who, err)
	}
	if _, err := own.Verify([]*x509.Certificate{liar.Certificate().Leaf}, pki.Call, time.Now()); !errs.Is(err, errs.Unauthenticated) || !strings.Contains(err.Error(), "for agents only") {
		t.Errorf("a gateway of the nodes' authority: %v", err)
	}
}

func TestASigningRequestGetsACertificateForItsKey(t *testing.T) {
	services, nodes := authorities(t)
	request, err := pki.NewSigningRequest()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.RequestedKey(request.CSR)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := nodes.Sign(pki.Request{Name: "n1", Identity: nodeOne, Server: true, Client: true, Now: time.Now(), Until: time.Now().Add(time.Hour)}, key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := pki.ParseBundle(pki.NewBundle(pki.Pair{Cert: cert, Key: request.Key}, services.Pair().Cert, nodes.Pair().Cert))
	if err != nil || b.Identity() != nodeOne || b.VerifyOwn(time.Now()) != nil {
		t.Errorf("%v, %v", b, err)
	}
}

func TestBadSigningRequestsAreRefused(t *testing.T) {
	good, err := pki.NewSigningRequest()
	if err != nil {
		t.Fatal(err)
	}
	der, _ := pem.Decode(good.CSR)
	forged := append([]byte{}, der.Bytes...)
	forged[len(forged)-1] ^= 1
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, other)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	for name, csr := range map[string][]byte{"empty": nil, "a key": good.Key, "not DER": encode([]byte("x")), "forged": encode(forged), "another curve": encode(large)} {
		if _, err := pki.RequestedKey(csr); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
}

func TestAServerIsKnownByTheFingerprintOfItsAuthority(t *testing.T) {
	services, nodes := authorities(t)
	foreign, _ := authorities(t)
	b := bundleOf(t, services, gateway, nodes)
	parse := func(b *pki.Bundle) (all []*x509.Certificate) {
		for _, der := range b.WithAuthorities().Certificate {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		return all
	}
	if who, err := pki.VerifyIssuer(parse(b), b.Issuer(), pki.Serve, time.Now()); err != nil || who != gateway {
		t.Errorf("%v, %v", who, err)
	}
	for name, presented := range map[string][]*x509.Certificate{
		"nothing": nil, "no authority": parse(b)[:1], "another authority": parse(bundleOf(t, foreign, gateway)),
		"the authority beside a foreign certificate": append(parse(bundleOf(t, foreign, gateway))[:1], parse(b)[1:]...),
	} {
		if _, err := pki.VerifyIssuer(presented, b.Issuer(), pki.Serve, time.Now()); !errs.Is(err, errs.Unauthenticated) {
			t.Errorf("%s: %v, want Unauthenticated", name, err)
		}
	}
}
