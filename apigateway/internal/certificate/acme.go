package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/net/idna"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// checkEvery is how often certificates are checked. The library renews them 30 days before they
	// expire, or in the last third of shorter validities.
	checkEvery = time.Hour
	// firstRetry and lastRetry bound the time between attempts to get a certificate, which doubles.
	// Authorities limit failed attempts: Let's Encrypt allows 5 for a name in an hour.
	firstRetry = 2 * time.Minute
	lastRetry  = checkEvery
)

// checkHost returns Invalid if an authority cannot issue a certificate for a host.
func checkHost(host string) error {
	const field = "tls.acme.hosts"
	if _, err := netip.ParseAddr(host); err == nil {
		return errs.Field(field, "%q is an address: ACME certificates are for names; use tls.cert and tls.key for addresses", host)
	}
	if strings.HasPrefix(host, "*") {
		return errs.Field(field, "%q is a wildcard, which needs a validation over DNS: list the names, or use tls.cert and tls.key", host)
	}
	if _, err := idna.Lookup.ToASCII(host); err != nil || !strings.Contains(strings.Trim(host, "."), ".") || strings.ContainsAny(host, "/: ") {
		return errs.Field(field, "%q is not the full name of a host, like games.example.org", host)
	}
	return nil
}

// issued has certificates that an authority issues. Only run asks the authority: if handshakes did, each
// client that waits for a missing certificate would use up the attempts that the authority allows.
type issued struct {
	names   []string
	manager *autocert.Manager
	log     *slog.Logger

	mu sync.Mutex
	// pairs has the certificates by name in ASCII. Guarded by mu.
	pairs map[string]*tls.Certificate
}

func newIssued(c ACME, log *slog.Logger) (*issued, error) {
	client := &acme.Client{DirectoryURL: c.Directory, UserAgent: "orrery"}
	if c.CA != "" {
		b, err := readFile("tls.acme.ca", c.CA)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(b) {
			return nil, unusable("tls.acme.ca", "%s has no certificate in PEM", c.CA)
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
		client.HTTPClient = &http.Client{Transport: transport}
	}
	if err := writable(c.Cache); err != nil {
		return nil, err
	}
	return &issued{
		names: c.Hosts, log: log, pairs: map[string]*tls.Certificate{},
		manager: &autocert.Manager{
			Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(c.Cache), HostPolicy: autocert.HostWhitelist(c.Hosts...),
			Client: client, Email: c.Email,
		},
	}, nil
}

// writable creates the directory of the cache, because a certificate that cannot be stored is asked for
// again at each start, until the authority refuses.
func writable(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".writable-"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return unusable("tls.acme.cache", "the directory %s cannot be written: %v", dir, err)
	}
	return nil
}

func (i *issued) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if slices.Equal(hello.SupportedProtos, i.protocols()) { // the authority validates a name
		return i.manager.GetCertificate(hello)
	}
	name := hello.ServerName
	if name == "" { // the client uses an address
		name = i.names[0]
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if pair := i.pairs[ascii(name)]; pair != nil {
		return pair, nil
	}
	return nil, fmt.Errorf("there is no certificate for %q", name)
}

// ascii returns a name in the form that certificates have.
func ascii(name string) string {
	out, err := idna.Lookup.ToASCII(name)
	if err != nil {
		return name
	}
	return out
}

func (i *issued) protocols() []string { return []string{acme.ALPNProto} }

func (i *issued) expiry(tell func(host string, until time.Time)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for host, pair := range i.pairs {
		tell(host, pair.Leaf.NotAfter)
	}
}

// run gets the certificates of all names before a client asks for them, and says why it cannot.
func (i *issued) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, host := range i.names {
		all.Go(func() { i.keep(ctx, host) })
	}
}

// keep keeps the certificate of a name until ctx ends.
func (i *issued) keep(ctx context.Context, host string) {
	retry := firstRetry
	for {
		wait := checkEvery
		switch pair, err := i.obtain(ctx, host); {
		case ctx.Err() != nil:
			return
		case err != nil:
			i.log.Error("no certificate for the API, trying again", "host", host, "in", retry, "error", err,
				"fix", "the authority must reach port 443 of "+host+", forwarded to this listener, and the name must lead here")
			wait, retry = retry, min(2*retry, lastRetry)
		default:
			i.serve(host, pair)
			retry = firstRetry
		}
		if !pause.For(ctx, wait) {
			return
		}
	}
}

func (i *issued) serve(host string, pair *tls.Certificate) {
	i.mu.Lock()
	defer i.mu.Unlock()
	name := ascii(host)
	if old := i.pairs[name]; old == nil || !old.Leaf.Equal(pair.Leaf) {
		i.log.Info("the API has a new certificate", "host", host, "until", pair.Leaf.NotAfter.UTC())
	}
	i.pairs[name] = pair
}

// obtain returns the certificate of a name. The library ignores ctx, so obtain does not wait longer.
func (i *issued) obtain(ctx context.Context, host string) (*tls.Certificate, error) {
	var pair *tls.Certificate
	done := make(chan error, 1)
	go func() {
		var err error
		// A client of these properties gets a certificate with an elliptic curve, as all do today.
		pair, err = i.manager.GetCertificate(&tls.ClientHelloInfo{
			ServerName: host, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
			SupportedCurves: []tls.CurveID{tls.CurveP256}, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
		})
		done <- err
	}()
	select {
	case err := <-done:
		return pair, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
