package orrery_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	orrery "github.com/orreryhq/orrery/sdk"
)

// gatewayWith returns the URL of a gateway with a self-signed certificate for a host, and the pool that trusts it.
func gatewayWith(t *testing.T, host string, until time.Time) (string, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-48 * time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version":"1.2.3"}`)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return server.URL, roots
}

func version(t *testing.T, url string, roots *x509.CertPool) error {
	t.Helper()
	c, err := orrery.New(orrery.Config{Addresses: []string{url}, RootCAs: roots, MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Call(t.Context(), orrery.Request{Method: http.MethodGet, Path: "/api/v1/system/version"}, nil)
}

func TestCertificatesThatAreNotAcceptedAreExplained(t *testing.T) {
	t.Parallel()
	tomorrow, yesterday := time.Now().AddDate(0, 0, 1), time.Now().AddDate(0, 0, -1)
	good, roots := gatewayWith(t, "127.0.0.1", tomorrow)
	if err := version(t, good, roots); err != nil {
		t.Errorf("a known authority: %v", err)
	}
	other, otherRoots := gatewayWith(t, "games.example", tomorrow)
	expired, expiredRoots := gatewayWith(t, "127.0.0.1", yesterday)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for name, c := range map[string]struct {
		url   string
		roots *x509.CertPool
		wants string
	}{
		"an unknown authority":  {good, nil, "the authority that signed its certificate is unknown here"},
		"another name":          {other, otherRoots, "its certificate is for another name"},
		"an expired one":        {expired, expiredRoots, "its certificate has expired"},
		"a server without TLS":  {"https" + strings.TrimPrefix(plain.URL, "http"), nil, "the server speaks HTTP, not HTTPS"},
		"TLS without the https": {"http" + strings.TrimPrefix(good, "https"), roots, "speaks HTTPS, not HTTP: use https://"},
	} {
		if err := version(t, c.url, c.roots); err == nil || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := version(t, good, nil); !errors.Is(err, orrery.ErrUnreachable) {
		t.Errorf("%v is not ErrUnreachable", err)
	}
}
