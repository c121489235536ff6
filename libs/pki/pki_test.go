package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
)

func authority(t *testing.T, now time.Time) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority("test authority", now, now.Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *pki.Authority, r pki.Request) pki.Pair {
	t.Helper()
	p, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// handshake connects a client with or without a certificate and returns the errors of both sides.
func handshake(t *testing.T, a *pki.Authority, server pki.Pair, host string, client *pki.Pair) (serverErr, clientErr error) {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.Pair().Cert) {
		t.Fatal("the authority's certificate is not PEM")
	}
	pair := func(p pki.Pair) []tls.Certificate {
		c, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{c}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	done := make(chan error, 1)
	go func() {
		far, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		s := tls.Server(far, &tls.Config{Certificates: pair(server), ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
		if err = s.Handshake(); err == nil {
			_, err = s.Write([]byte("x")) // with TLS 1.3, the client learns only after its handshake whether it was accepted
		}
		_ = far.Close()
		done <- err
	}()
	cfg := &tls.Config{RootCAs: pool, ServerName: host}
	if client != nil {
		cfg.Certificates = pair(*client)
	}
	c := tls.Client(near, cfg)
	_, clientErr = c.Read(make([]byte, 1))
	_ = near.Close()
	return <-done, clientErr
}

func TestOnlyCertificatesOfTheAuthorityConnect(t *testing.T) {
	now := time.Now()
	a, other := authority(t, now), authority(t, now)
	req := func(r pki.Request) pki.Request {
		r.Name, r.Now, r.Until = "tester", now, now.Add(time.Hour)
		return r
	}
	server := issue(t, a, req(pki.Request{Server: true, Hosts: []string{"db.test", "192.0.2.1"}}))
	client := issue(t, a, req(pki.Request{Client: true}))
	stranger := issue(t, other, req(pki.Request{Client: true}))
	for _, c := range []struct {
		name   string
		server pki.Pair
		host   string
		client *pki.Pair
		works  bool
	}{
		{"by a DNS name", server, "db.test", &client, true},
		{"by an address", server, "192.0.2.1", &client, true},
		{"by another name", server, "other.test", &client, false},
		{"without a client certificate", server, "db.test", nil, false},
		{"with a certificate of another authority", server, "db.test", &stranger, false},
		{"with a server's certificate as the client's", server, "db.test", &server, false},
		{"with a client's certificate as the server's", client, "db.test", &client, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, cl := handshake(t, a, c.server, c.host, c.client)
			if works := s == nil && cl == nil; works != c.works {
				t.Errorf("server %v, client %v; want it to work: %v", s, cl, c.works)
			}
		})
	}
}

func TestACertificateExpiresWithItsAuthority(t *testing.T) {
	now := time.Now()
	a := authority(t, now)
	p := issue(t, a, pki.Request{Name: "long", Client: true, Now: now, Until: now.Add(1000 * time.Hour)})
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	if got := pair.Leaf.NotAfter; !got.Equal(a.Until()) {
		t.Errorf("it expires at %v, its authority at %v", got, a.Until())
	}
	if _, err := a.Issue(pki.Request{Name: "late", Client: true, Now: a.Until(), Until: a.Until().Add(time.Hour)}); !errs.Is(err, errs.Invalid) {
		t.Errorf("issued by an authority that expired: %v", err)
	}
}

func TestAnAuthorityIsLoadedFromItsPair(t *testing.T) {
	now := time.Now()
	a := authority(t, now)
	again, err := pki.LoadAuthority(a.Pair())
	if err != nil {
		t.Fatal(err)
	}
	server := issue(t, a, pki.Request{Name: "s", Hosts: []string{"db.test"}, Server: true, Now: now, Until: now.Add(time.Hour)})
	client := issue(t, again, pki.Request{Name: "c", Client: true, Now: now, Until: now.Add(time.Hour)})
	if s, c := handshake(t, a, server, "db.test", &client); s != nil || c != nil {
		t.Errorf("a certificate of the loaded authority is refused: %v, %v", s, c)
	}

	leaf := issue(t, a, pki.Request{Name: "leaf", Client: true, Now: now, Until: now.Add(time.Hour)})
	for name, p := range map[string]pki.Pair{
		"nothing":                   {},
		"no key":                    {Cert: a.Pair().Cert},
		"a certificate and no key":  {Cert: a.Pair().Cert, Key: a.Pair().Cert},
		"another authority's key":   {Cert: a.Pair().Cert, Key: authority(t, now).Pair().Key},
		"not an authority":          leaf,
		"two certificates":          {Cert: bytes.Repeat(a.Pair().Cert, 2), Key: a.Pair().Key},
		"a certificate of nonsense": {Cert: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), Key: a.Pair().Key},
	} {
		if _, err := pki.LoadAuthority(p); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
}

func FuzzLoadAuthority(f *testing.F) {
	now := time.Now()
	a, err := pki.NewAuthority("fuzz", now, now.Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(a.Pair().Cert, a.Pair().Key)
	f.Fuzz(func(_ *testing.T, cert, key []byte) {
		_, _ = pki.LoadAuthority(pki.Pair{Cert: cert, Key: key})
	})
}
