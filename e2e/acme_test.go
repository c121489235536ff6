package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
)

// free returns an address on loopback that nothing listens on.
func free(t *testing.T) (address string, port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String(), l.Addr().(*net.TCPAddr).Port
}

// pebble is an ACME authority for tests, of the version in e2e/acme.
type pebble struct {
	*site.Process
	directory, management string
	// signs is the authority of its own listener's certificate.
	signs authority
}

// startPebble starts a Pebble that finds all names at 127.0.0.1, and validates them at a port.
func startPebble(t *testing.T, tlsPort int) pebble {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(cluster.Bounded(t), "go", "build", "-o", dir+"/", "tool")
	build.Dir, build.Env = filepath.Join(cluster.Root(t), "e2e", "acme"), append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building pebble: %v\n%s", err, out)
	}
	dns, _ := free(t)
	names := site.NewProcess("names", filepath.Join(dir, "pebble-challtestsrv"), filepath.Join(dir, "names.log"),
		"-http01", "", "-https01", "", "-doh", "", "-tlsalpn01", "", "-management", "127.0.0.1:0", "-dnsserver", dns, "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "")
	listen, _ := free(t)
	management, _ := free(t)
	a := newAuthority(t)
	a.write(t, dir, "127.0.0.1")
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": management, "tlsPort": tlsPort, "httpPort": 1, "keyAlgorithm": "ecdsa",
		"certificate": filepath.Join(dir, "tls.crt"), "privateKey": filepath.Join(dir, "tls.key"),
		"profiles": map[string]any{"default": map[string]any{"description": "default", "validityPeriod": 90 * 24 * 3600}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	p := pebble{
		Process:   site.NewProcess("pebble", filepath.Join(dir, "pebble"), filepath.Join(dir, "pebble.log"), "-config", file, "-dnsserver", dns),
		directory: "https://" + listen + "/dir", management: "https://" + management, signs: a,
	}
	for _, process := range []*site.Process{names, p.Process} {
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			process.Kill() // it does not end by itself
			if log, _ := process.Log(); t.Failed() {
				t.Logf("---- %s\n%s", process.Name, log)
			}
		})
	}
	await.That(t, "pebble", func() string { return a.reached(t, p.directory) })
	return p
}

// reached returns why a URL does not answer.
func (a authority) reached(t *testing.T, url string) string {
	t.Helper()
	r, err := a.client(t, "").Get(url)
	if err != nil {
		return err.Error()
	}
	return await.Unless(r.Body.Close() == nil && r.StatusCode == 200, "%s", r.Status)
}

// roots returns the authority of the certificates that Pebble issues. Each start has a new one.
func (p pebble) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	r, err := p.signs.client(t, "").Get(p.management + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	pem, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("no certificate: %s", pem)
	}
	return pool
}

// certificateOf returns the certificate that a client gets for a name, or why it gets none.
func certificateOf(address, name string, roots *x509.CertPool) (*x509.Certificate, error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{ServerName: name, RootCAs: roots}}
	c, err := dialer.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func TestAnACMEAuthorityIssuesTheAPIsCertificates(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	address, port := free(t)
	p := startPebble(t, port)
	cache := filepath.Join(t.TempDir(), "acme")
	g := startGateway(t, c, admin, "acme", "--listen", address, "--tls-acme-hosts", "games.example.org,panel.example.org", "--tls-acme-directory", p.directory,
		"--tls-acme-ca", p.signs.file, "--tls-acme-cache", cache, "--tls-acme-email", "ops@example.org")
	roots := p.roots(t)
	serials := map[string]string{}
	for _, name := range []string{"games.example.org", "panel.example.org"} {
		await.That(t, "the certificate of "+name, func() string {
			leaf, err := certificateOf(address, name, roots)
			if err != nil {
				return err.Error()
			}
			serials[name] = leaf.SerialNumber.String()
			return ""
		})
	}
	if _, err := certificateOf(address, "other.example.org", roots); err == nil {
		t.Error("there is a certificate for a name that is not in the settings")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{ServerName: "games.example.org", RootCAs: roots}}}
	_, text := get(t, client, g.url+"/api/metrics", admin.Token())
	for name := range serials {
		if !strings.Contains(text, fmt.Sprintf(`orrery_apigateway_tls_certificate_expiry_timestamp_seconds{host=%q}`, name)) {
			t.Errorf("the metrics lack %s", name)
		}
	}

	// The next start uses what is stored, without the authority.
	p.Kill()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	for name, serial := range serials {
		await.That(t, "the stored certificate of "+name, func() string {
			leaf, err := certificateOf(address, name, roots)
			if err != nil {
				return err.Error()
			}
			return await.Unless(leaf.SerialNumber.String() == serial, "another certificate")
		})
	}
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestAGatewaySaysWhyAnACMEAuthorityIssuesNothing(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	stranger := newAuthority(t)
	_, port := free(t)
	p := startPebble(t, port) // validates at a port where nothing listens
	for name, ca := range map[string]string{"unreachable": p.signs.file, "distrusting": stranger.file} {
		g := startGateway(t, c, admin, name, "--tls-acme-hosts", "games.example.org", "--tls-acme-directory", p.directory,
			"--tls-acme-ca", ca, "--tls-acme-cache", filepath.Join(t.TempDir(), "acme"))
		want := map[string]string{"unreachable": "forwarded to this listener", "distrusting": "unknown authority"}[name]
		await.That(t, "the reason", func() string {
			log := g.log(t)
			return await.Unless(strings.Contains(log, "no certificate for the API") && strings.Contains(log, want), "%s", log)
		})
	}
}
