package doctor_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/doctor"
)

// authorityVariable has the file with the key and the certificate of the authority that this process trusts.
const authorityVariable = "ORRERY_TEST_AUTHORITY"

// TestMain makes this process trust an authority before anything reads SSL_CERT_FILE, which happens once.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "orrery-doctor-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	trusted, err := newSigner("trusted")
	if err == nil {
		err = trusted.store(filepath.Join(dir, "authority.pem"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	time.Local = time.UTC
	return m.Run()
}

// signer is a certificate with its key.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newSigner(name string) (s signer, err error) {
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return s, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &s.key.PublicKey, s.key)
	if err != nil {
		return s, err
	}
	s.certificate, err = x509.ParseCertificate(der)
	return s, err
}

// store writes a signer into a file, which this process then trusts.
func (s signer) store(file string) error {
	key, err := x509.MarshalECPrivateKey(s.key)
	if err != nil {
		return err
	}
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw})
	content = append(content, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})...)
	return errors.Join(os.WriteFile(file, content, 0o600), os.Setenv("SSL_CERT_FILE", file), os.Setenv(authorityVariable, file))
}

// trustedSigner returns the authority that this process trusts.
func trustedSigner(t *testing.T) signer {
	t.Helper()
	file := os.Getenv(authorityVariable)
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	return signer{pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)}
}

// gateway returns the URL of a gateway with a certificate that is valid in a time and for a name or an address.
func (s signer) gateway(t *testing.T, from, until time.Time, host string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: until}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, &key.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"version":"devel","status":"READY"}`))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(t.Output(), "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func TestTheCertificateOfAServer(t *testing.T) {
	trusted := trustedSigner(t)
	stranger, err := newSigner("stranger")
	if err != nil {
		t.Fatal(err)
	}
	const day, half, here = 24 * time.Hour, 30 * time.Minute, "127.0.0.1"
	now := time.Now()
	for name, c := range map[string]struct {
		signer      signer
		from, until time.Duration
		host        string
		line, fix   string
	}{
		"valid for long":         {trusted, -30 * day, 60*day + half, here, "OK   server    the certificate of %s is valid for 60d0h, until ", ""},
		"ends soon":              {trusted, -80 * day, 10*day + half, here, "WARN server    the certificate of %s ends in 10d0h, at ", "a gateway then uses the new files by itself"},
		"valid for a short time": {trusted, -day, 5*day + half, here, "OK   server    the certificate of %s is valid for 5d0h, until ", ""},
		"short time, ends soon":  {trusted, -5 * day, day + half, here, "WARN server    the certificate of %s ends in 1d0h, at ", "sudo certbot renew"},
		"expired":                {trusted, -90 * day, -3*day - half, here, "FAIL server    the certificate of %s expired 3d0h ago, at ", "sudo certbot renew"},
		"expired, unknown":       {stranger, -90 * day, -3*day - half, here, "FAIL server    the certificate of %s expired 3d0h ago, at ", "sudo certbot renew"},
		"not valid yet":          {trusted, 2 * day, 90 * day, here, "FAIL server    the certificate of %s is valid only from ", "timedatectl"},
		"of another host":        {trusted, -day, 90 * day, "games.example", "FAIL server    the certificate of %s is not for that name: ", "sudo certbot certonly -d 127.0.0.1"},
		"unknown authority":      {stranger, -day, 90 * day, here, "FAIL server    this machine does not know the authority that signed the certificate of %s", "orrery context set NAME --ca FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			url := c.signer.gateway(t, now.Add(c.from), now.Add(c.until), c.host)
			r := clitest.Run(t, doctor.Commands, url, "", "doctor")
			if want := fmt.Sprintf(c.line, url); !strings.Contains(r.Out, want) || !strings.Contains(r.Out, c.fix) {
				t.Errorf("%q and %q are not in\n%s", want, c.fix, r)
			}
		})
	}
}
