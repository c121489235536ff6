package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(strings.Repeat("s", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettings(t *testing.T) {
	secret := secretFile(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	cases := []struct {
		name string
		args []string
		code int
		says string
	}{
		{"help names the settings", []string{"--help"}, 0, "--admin-password-file"},
		{"a version is told", []string{"--version"}, 0, "apigateway"},
		{"secrets are masked", []string{"--print-config", "--cluster-secret-file", secret}, 0, "***"},
		{"no secret is refused", nil, 2, "cluster.secret"},
		{"a flag with a typo is refused", []string{"--lissten", ":1"}, 2, "listen"},
		{"a negative limit is refused", []string{"--cluster-secret-file", secret, "--limits-logins", "-1"}, 2, "limits.logins"},
		{"a login provider without roles is refused", []string{"--cluster-secret-file", secret, "--oidc-issuer", "https://login.example.org", "--oidc-client-id", "orrery"}, 2, "oidc.roles"},
		{"the secret of a login provider is masked", []string{"--print-config", "--cluster-secret-file", secret, "--oidc-client-secret-file", secret}, 0, "client-secret: '***'"},
		{"a taken address is told as such", []string{"--cluster-secret-file", secret, "--listen", busy.Addr().String()}, 2, "is in use by another program"},
		{"all addresses without TLS are refused", []string{"--cluster-secret-file", secret, "--listen", ":0"}, 2, "set tls.cert and tls.key, or tls.acme.hosts; or behind-proxy"},
		{"a certificate without its key is refused", []string{"--cluster-secret-file", secret, "--tls-cert", "cert.pem"}, 2, "tls.key must name the file"},
		{"a missing certificate is refused", []string{"--cluster-secret-file", secret, "--listen", "127.0.0.1:0", "--tls-cert", "/missing.pem", "--tls-key", secret}, 2, "tls.cert: the file /missing.pem does not exist"},
		{"a proxy of all addresses is refused", []string{"--cluster-secret-file", secret, "--behind-proxy", "0.0.0.0/0"}, 2, "behind-proxy would believe"},
		{"the old name of behind-proxy is refused", []string{"--cluster-secret-file", secret, "--network-trusted-proxies", "10.0.0.1"}, 2, "has been renamed: set behind-proxy"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(c.args, nil, &stdout, &stderr); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if out := stdout.String() + stderr.String(); !strings.Contains(out, c.says) {
				t.Errorf("%q is not in %s", c.says, out)
			}
		})
	}
}

func TestALimitOfZeroSetsNone(t *testing.T) {
	var s settings
	s.Limits.Logins = 3
	if l := limits(&s); l.Anonymous >= 0 || l.Logins != 3 {
		t.Errorf("%+v", l)
	}
}
