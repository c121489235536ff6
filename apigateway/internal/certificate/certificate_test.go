package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestSettingsThatContradictThemselvesAreRefused(t *testing.T) {
	t.Parallel()
	acme := ACME{Hosts: []string{"games.example.org"}, Directory: "https://ca.example/dir", Cache: "acme"}
	with := func(edit func(*Config)) Config {
		c := Config{ACME: acme}
		edit(&c)
		return c
	}
	for name, c := range map[string]struct {
		config       Config
		field, wants string
	}{
		"a certificate without a key": {Config{Cert: "a"}, "tls.key", "private key"},
		"a key without a certificate": {Config{Key: "a"}, "tls.cert", "certificate"},
		"a negative age":              {Config{HSTS: -1}, "tls.hsts", "negative"},
		"files and ACME":              {with(func(c *Config) { c.Cert, c.Key = "a", "b" }), "tls.acme.hosts", "leave out one"},
		"ACME without a cache":        {with(func(c *Config) { c.ACME.Cache = "" }), "tls.acme.cache", "directory"},
		"ACME over HTTP":              {with(func(c *Config) { c.ACME.Directory = "http://ca.example" }), "tls.acme.directory", "https://"},
		"an address as a host":        {with(func(c *Config) { c.ACME.Hosts = []string{"10.0.0.1"} }), "tls.acme.hosts", "is an address"},
		"a wildcard as a host":        {with(func(c *Config) { c.ACME.Hosts = []string{"*.example.org"} }), "tls.acme.hosts", "wildcard"},
		"a URL as a host":             {with(func(c *Config) { c.ACME.Hosts = []string{"https://a.example"} }), "tls.acme.hosts", "full name"},
		"a port in a host":            {with(func(c *Config) { c.ACME.Hosts = []string{"a.example:443"} }), "tls.acme.hosts", "full name"},
		"a name without a domain":     {with(func(c *Config) { c.ACME.Hosts = []string{"localhost"} }), "tls.acme.hosts", "full name"},
	} {
		problems := c.config.Check()
		if len(problems) != 1 || errs.FieldOf(problems[0]) != c.field || !strings.Contains(problems[0].Error(), c.wants) {
			t.Errorf("%s: %v", name, problems)
		}
	}
	for _, c := range []Config{{}, {Cert: "a", Key: "b"}, {ACME: acme}, with(func(c *Config) { c.ACME.Hosts = []string{"bücher.example"} })} {
		if problems := c.Check(); problems != nil {
			t.Errorf("%+v: %v", c, problems)
		}
	}
}

func TestACMENeedsAWritableCacheAndItsAuthorities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := put(t, dir, pair(t, "a.example", noon))
	log := new(journal).logger()
	for field, c := range map[string]ACME{
		"tls.acme.cache": {Hosts: []string{"a.example"}, Cache: filepath.Join(cert, "below")},
		"tls.acme.ca":    {Hosts: []string{"a.example"}, Cache: filepath.Join(dir, "acme"), CA: key},
	} {
		if _, err := New(Config{ACME: c}, nil, log, at(noon)); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestHandshakesDoNotAskTheAuthority(t *testing.T) {
	t.Parallel()
	// A request to this directory would fail otherwise.
	i, err := newIssued(ACME{Hosts: []string{"a.example"}, Directory: "https://127.0.0.1:1/dir", Cache: t.TempDir()}, new(journal).logger())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.example", "", "b.example"} {
		if _, err := i.get(&tls.ClientHelloInfo{ServerName: name}); err == nil || !strings.Contains(err.Error(), "there is no certificate") {
			t.Errorf("%q: %v", name, err)
		}
	}
	p := pair(t, "a.example", noon)
	own, err := parse("", "", content{p.Cert, p.Key})
	if err != nil {
		t.Fatal(err)
	}
	i.serve("a.example", own)
	for _, name := range []string{"a.example", "A.Example", ""} {
		if got, err := i.get(&tls.ClientHelloInfo{ServerName: name}); err != nil || got != own {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// shake connects a client to a server and returns the error of the client.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			_, _ = c.Read(make([]byte, 1)) // does the handshake, and waits for the client's end
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	return c.ConnectionState(), nil
}

func TestGatewaysOfAClusterRecogniseEachOther(t *testing.T) {
	t.Parallel()
	one, other := "0123456789abcdef0123456789abcdef", "another secret of some other cluster"
	cert, key := put(t, t.TempDir(), pair(t, "a.example", noon))
	of := func(secret string) (*Source, *Peer) {
		peer, err := NewPeer(secret)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Cert: cert, Key: key}, peer, new(journal).logger(), at(noon))
		if err != nil {
			t.Fatal(err)
		}
		return s, peer
	}
	server, _ := of(one)
	_, same := of(one)
	state, err := shake(t, server.TLS(), same.Client())
	if err != nil || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("a gateway of the cluster: %v, %q", err, state.NegotiatedProtocol)
	}
	_, stranger := of(other)
	if _, err := shake(t, server.TLS(), stranger.Client()); err == nil {
		t.Error("a gateway of another cluster is taken for one of this")
	}
	if _, err := shake(t, server.TLS(), &tls.Config{MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true}); err == nil {
		t.Error("a client with TLS 1.1 may connect")
	}
}

func TestGatewaysAcceptProxiesOfKnownAuthorities(t *testing.T) {
	t.Parallel()
	peer, err := NewPeer("0123456789abcdef0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	p := pair(t, "a.example", time.Now())
	parsed, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &tls.Config{Certificates: []tls.Certificate{parsed}}
	if _, err := shake(t, proxy, peer.Client()); !errs.Is(err, errs.Denied) {
		t.Errorf("an address that is no gateway: %v", err)
	}
	named := peer.Client()
	named.ServerName = "a.example"
	_, err = shake(t, proxy, named)
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown {
		t.Errorf("an unknown authority: %v", err)
	}
}
