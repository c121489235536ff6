package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
)

var nodeOne = pki.Identity{Service: pki.Agent, Name: "n1"}

// service issues a certificate that a service both serves and calls others with.
func service(t *testing.T, a *pki.Authority, id pki.Identity, from, until time.Time) pki.Pair {
	t.Helper()
	return issue(t, a, pki.Request{Name: id.Path(), Identity: id, Server: true, Client: true, Now: from, Until: until})
}

func bundle(t *testing.T, text []byte) *pki.Bundle {
	t.Helper()
	b, err := pki.ParseBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func leaf(t *testing.T, p pki.Pair) []*x509.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{c.Leaf}
}

func TestParseBundleRefusesPartsThatDoNotBelongTogether(t *testing.T) {
	now := time.Now()
	a, other := authority(t, now), authority(t, now)
	p := service(t, a, nodeOne, now, now.Add(time.Hour))
	stranger := service(t, a, nodeOne, now, now.Add(time.Hour))
	nameless := issue(t, a, pki.Request{Name: "nameless", Client: true, Server: true, Now: now, Until: now.Add(time.Hour)})
	ca := a.Pair().Cert
	if b := bundle(t, pki.NewBundle(p, other.Pair().Cert, ca)); b.Identity() != nodeOne {
		t.Errorf("identity %v, want %v", b.Identity(), nodeOne)
	}
	for name, c := range map[string]struct {
		text []byte
		says string
	}{
		"empty":                    {nil, "no certificate of a service"},
		"broken PEM":               {bytes.Replace(pki.NewBundle(p, ca), []byte("-----END"), []byte("-----ENDE"), 1), ""},
		"text behind the PEM":      {append(pki.NewBundle(p, ca), "xyz"...), "not PEM"},
		"no key":                   {bytes.Join([][]byte{p.Cert, ca}, nil), "no private key"},
		"key of another":           {pki.NewBundle(pki.Pair{Cert: p.Cert, Key: stranger.Key}, ca), "does not belong"},
		"two keys":                 {append(pki.NewBundle(p, ca), stranger.Key...), "two private keys"},
		"two services":             {append(pki.NewBundle(p, ca), stranger.Cert...), "two certificates"},
		"no authority":             {pki.NewBundle(p), "no certificate of an authority"},
		"another authority":        {pki.NewBundle(p, other.Pair().Cert), "no authority in the bundle has issued"},
		"certificate of no one":    {pki.NewBundle(nameless, ca), "names no service"},
		"the authority's own":      {pki.NewBundle(a.Pair()), "no certificate of a service"},
		"a block of another kind":  {append(pki.NewBundle(p, ca), "-----BEGIN X-----\nAAAA\n-----END X-----\n"...), "block of type X"},
		"nonsense in a block":      {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), ""},
		"nonsense in the key":      {pki.NewBundle(pki.Pair{Cert: p.Cert, Key: []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")}, ca), ""},
		"the authority's key only": {bytes.Join([][]byte{p.Cert, a.Pair().Key, ca}, nil), "does not belong"},
	} {
		_, err := pki.ParseBundle(c.text)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want Invalid with %q", name, err, c.says)
		}
	}
}

func TestVerifySaysWhatIsWrongWithACertificate(t *testing.T) {
	now := time.Now()
	a, other := authority(t, now), authority(t, now)
	b := bundle(t, pki.NewBundle(service(t, a, pki.Identity{Service: pki.Gateway}, now, now.Add(time.Hour)), a.Pair().Cert))
	good := leaf(t, service(t, a, nodeOne, now, now.Add(time.Hour)))
	for name, c := range map[string]struct {
		presented []*x509.Certificate
		use       pki.Use
		now       time.Time
		says      string // empty: accepted
	}{
		"to call":           {good, pki.Call, now, ""},
		"to serve":          {good, pki.Serve, now, ""},
		"clock 4 min slow":  {good, pki.Call, now.Add(-4 * time.Minute), ""},
		"clock 6 min slow":  {good, pki.Call, now.Add(-6 * time.Minute), "correct the clock"},
		"expired":           {good, pki.Call, now.Add(2 * time.Hour), "expired at"},
		"none":              {nil, pki.Call, now, "no certificate"},
		"another authority": {leaf(t, service(t, other, nodeOne, now, now.Add(time.Hour))), pki.Call, now, "does not trust"},
		"wrong use":         {leaf(t, issue(t, a, pki.Request{Name: "s", Identity: nodeOne, Server: true, Now: now, Until: now.Add(time.Hour)})), pki.Call, now, "may not be used to call others"},
		"no identity":       {leaf(t, issue(t, a, pki.Request{Name: "x", Client: true, Now: now, Until: now.Add(time.Hour)})), pki.Call, now, "names no service"},
	} {
		id, err := b.Verify(c.presented, c.use, c.now)
		switch {
		case c.says == "" && (err != nil || id != nodeOne):
			t.Errorf("%s: %v, %v", name, id, err)
		case c.says != "" && (!errs.Is(err, errs.Unauthenticated) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want Unauthenticated with %q", name, err, c.says)
		}
	}
}

func TestIssueRefusesIdentitiesThatNoServiceHas(t *testing.T) {
	now := time.Now()
	a := authority(t, now)
	for _, id := range []pki.Identity{
		{Service: "nobody"}, {Service: pki.Agent}, {Name: "n1"}, {Service: pki.Agent, Name: "a/b"}, {Service: pki.Scheduler, Name: "ä"},
	} {
		if _, err := a.Issue(pki.Request{Name: "x", Identity: id, Client: true, Now: now, Until: now.Add(time.Hour)}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v: %v, want Invalid", id, err)
		}
	}
}

func TestAnIdentityWithoutNameIncludesItsService(t *testing.T) {
	gateways := pki.Identity{Service: pki.Gateway}
	for _, c := range []struct {
		of, other pki.Identity
		want      bool
	}{
		{gateways, pki.Identity{Service: pki.Gateway, Name: "g1"}, true},
		{gateways, gateways, true},
		{gateways, nodeOne, false},
		{nodeOne, nodeOne, true},
		{nodeOne, pki.Identity{Service: pki.Agent, Name: "n2"}, false},
	} {
		if got := c.of.Includes(c.other); got != c.want {
			t.Errorf("%v includes %v: %v", c.of, c.other, got)
		}
	}
}

func TestParsePairWantsOneOfEach(t *testing.T) {
	p := authority(t, time.Now()).Pair()
	if got, err := pki.ParsePair(append(append([]byte{}, p.Key...), p.Cert...)); err != nil || !bytes.Equal(got.Cert, p.Cert) || !bytes.Equal(got.Key, p.Key) {
		t.Errorf("%v", err)
	}
	for name, text := range map[string][]byte{
		"nothing": nil, "no key": p.Cert, "no certificate": p.Key, "two certificates": append(append([]byte{}, p.Cert...), p.Cert...),
	} {
		if _, err := pki.ParsePair(text); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
}

func FuzzParseBundle(f *testing.F) {
	now := time.Now()
	a, err := pki.NewAuthority("fuzz", now, now.Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	p, err := a.Issue(pki.Request{Name: "x", Identity: nodeOne, Client: true, Server: true, Now: now, Until: now.Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pki.NewBundle(p, a.Pair().Cert))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if b, err := pki.ParseBundle(text); err == nil {
			_ = b.VerifyOwn(now)
		}
	})
}
