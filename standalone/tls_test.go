package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/pki"
)

func TestTheAPIIsServedOverTLS(t *testing.T) {
	t.Parallel()
	now := time.Now()
	authority, err := pki.NewAuthority("test", now, now.AddDate(0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	for hosts, url := range map[string]string{"localhost": "https://localhost:", "localhost,127.0.0.1": "https://127.0.0.1:"} {
		pair, err := authority.Issue(pki.Request{Name: "test", Hosts: strings.Split(hosts, ","), Server: true, Now: now, Until: now.AddDate(0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		for path, content := range map[string][]byte{cert: pair.Cert, key: pair.Key} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := launch(t, filepath.Join(dir, "data"), []string{"-demo", "-tls-cert", cert, "-tls-key", key})
		p.awaitReady()
		if !strings.HasPrefix(p.ready.API, url) {
			t.Errorf("a certificate for %s: the API is at %s", hosts, p.ready.API)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority.Pair().Cert)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
		r, err := client.Get(p.ready.API + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != 200 || r.Header.Get("Strict-Transport-Security") != "max-age=31536000" {
			t.Errorf("%d, %v", r.StatusCode, r.Header)
		}
		p.stop()
	}
}
