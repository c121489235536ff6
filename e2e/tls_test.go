package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
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
	"github.com/orreryhq/orrery/libs/pki"
)

// authority issues certificates for tests.
type authority struct {
	*pki.Authority
	// file has its certificate in PEM, and roots trusts it.
	file  string
	roots *x509.CertPool
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	now := time.Now()
	a, err := pki.NewAuthority("test", now, now.AddDate(0, 0, 30))
	if err != nil {
		t.Fatal(err)
	}
	out := authority{a, filepath.Join(t.TempDir(), "ca.pem"), x509.NewCertPool()}
	out.roots.AppendCertsFromPEM(a.Pair().Cert)
	if err := os.WriteFile(out.file, a.Pair().Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// write issues a certificate for hosts and writes it into a directory.
func (a authority) write(t *testing.T, dir string, hosts ...string) {
	t.Helper()
	now := time.Now()
	p, err := a.Issue(pki.Request{Name: hosts[0], Hosts: hosts, Server: true, Now: now, Until: now.AddDate(0, 0, 10)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// client returns a client that trusts the authority, with a new connection for each request. It verifies the
// name of the certificate, whatever the URL has.
func (a authority) client(t *testing.T, name string) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.roots, ServerName: name}, DisableKeepAlives: true}
	return &http.Client{Transport: transport}
}

// secureGateway is a gateway process with settings of its own. It is not in the cluster's list of processes.
type secureGateway struct {
	*site.Process
	url string
}

// startGateway starts a gateway and waits until it is a member of the cluster.
func startGateway(t *testing.T, c cluster.Local, admin *cluster.Client, name string, args ...string) secureGateway {
	t.Helper()
	return startGatewayWith(t, c, c.Etcd(), admin, name, args...)
}

// startGatewayWith is startGateway with a URL of etcd.
func startGatewayWith(t *testing.T, c cluster.Local, etcd string, admin *cluster.Client, name string, args ...string) secureGateway {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args = append([]string{
		"--replica", name, "--listen", "127.0.0.1:0", "--etcd-endpoints", etcd, "--cluster-secret-file", c.SecretFile(), "--seal-key-file", c.SealKeyFile(),
		"--admin-password-file", path + ".password", "--limits-anonymous", "0", "--limits-logins", "0", "--session-ttl", "2s",
	}, args...)
	g := secureGateway{Process: site.NewProcess(name, cluster.Program(t, "./apigateway/cmd/apigateway"), path+".log", args...)}
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("---- %s\n%s", name, g.log(t))
		}
	})
	await.That(t, name+" a member", func() string {
		if !g.Running() {
			t.Fatalf("%s ended: %v\n%s", name, g.Ended(), g.log(t))
		}
		var all struct {
			Members []struct{ Replica, URL string }
		}
		admin.Do("GET", "/api/v1/cluster/members", nil).OK(200, &all)
		for _, m := range all.Members {
			if m.Replica == name {
				g.url = m.URL
			}
		}
		return await.Unless(g.url != "", "it is none")
	})
	return g
}

func (g secureGateway) log(t *testing.T) string {
	t.Helper()
	log, err := g.Log()
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// get requests a path with a token and returns the body.
func get(t *testing.T, client *http.Client, url, token string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(cluster.Bounded(t), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	r, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

// served returns why clients do not get a certificate for a name; empty if they do.
func (a authority) served(t *testing.T, url, name string) string {
	t.Helper()
	r, err := a.client(t, name).Get(url + "/livez")
	if err != nil {
		return err.Error()
	}
	_ = r.Body.Close()
	return ""
}

func TestTheAPIOverTLS(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	a := newAuthority(t)
	dir := t.TempDir()
	a.write(t, filepath.Join(dir, "first"), "first.example", "127.0.0.1")
	a.write(t, filepath.Join(dir, "second"), "second.example", "127.0.0.1")
	live := filepath.Join(dir, "live") // as Kubernetes and certbot do
	swap := func(target string) {
		t.Helper()
		if err := errors.Join(os.Symlink(target, live+".new"), os.Rename(live+".new", live)); err != nil {
			t.Fatal(err)
		}
	}
	swap("first")
	g := startGateway(t, c, admin, "secure", "--tls-cert", filepath.Join(live, "tls.crt"), "--tls-key", filepath.Join(live, "tls.key"))
	if !strings.HasPrefix(g.url, "https://") {
		t.Fatalf("the gateway's URL is %s", g.url)
	}

	r, body := get(t, a.client(t, "first.example"), g.url+"/api/v1/overview", admin.Token())
	if r.StatusCode != 200 || r.Header.Get("Strict-Transport-Security") != "max-age=31536000" || !strings.Contains(body, `"insecureHttp":false`) {
		t.Errorf("%d %v %s", r.StatusCode, r.Header, body)
	}
	if _, text := get(t, a.client(t, "first.example"), g.url+"/api/metrics", admin.Token()); !strings.Contains(text, `orrery_apigateway_tls_certificate_expiry_timestamp_seconds{host="first.example"}`) {
		t.Error("the metrics lack the certificate")
	}

	// A stream that is open continues while the certificate is replaced.
	request, err := http.NewRequestWithContext(t.Context(), "GET", g.url+"/api/v1/events/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+admin.Token())
	stream, err := a.client(t, "first.example").Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	events := frames(t, stream)
	swap("second")
	await.That(t, "the second certificate", func() string { return a.served(t, g.url, "second.example") })
	createGroup(t, admin, map[string]any{"name": "lobby", "command": "exec sleep 1000", "minInstances": 0})
	await.That(t, "an event on the stream", func() string {
		select {
		case e, open := <-events:
			if !open {
				t.Fatal("the stream has ended")
			}
			return await.Unless(strings.Contains(e.data, "lobby"), "%s", e.data)
		default:
			return "no event"
		}
	})

	// A broken certificate is refused.
	if err := os.MkdirAll(filepath.Join(dir, "broken"), 0o700); err != nil {
		t.Fatal(err)
	}
	a.write(t, filepath.Join(dir, "broken"), "broken.example")
	if err := os.WriteFile(filepath.Join(dir, "broken", "tls.crt"), []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	swap("broken")
	await.That(t, "the log about the broken certificate", func() string {
		return await.Unless(strings.Contains(g.log(t), "the old one stays") && strings.Contains(g.log(t), "has no certificate in PEM"), "%s", g.log(t))
	})
	if why := a.served(t, g.url, "second.example"); why != "" {
		t.Errorf("after the broken certificate: %s", why)
	}

	// The command line accepts the certificate of an authority that it is told.
	swap("first")
	await.That(t, "the first certificate", func() string { return a.served(t, g.url, "first.example") })
	settings := filepath.Join(t.TempDir(), "config.yaml")
	orrery := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(cluster.Bounded(t), cluster.Program(t, "./cli/cmd/orrery"), args...)
		cmd.Env = append(os.Environ(), "ORRERY_CONFIG="+settings, "DBUS_SESSION_BUS_ADDRESS=")
		out, _ := cmd.CombinedOutput() // the text says whether it failed
		return string(out)
	}
	says := func(want, hint string, args ...string) {
		t.Helper()
		if got := orrery(args...); !strings.Contains(got, want) || !strings.Contains(got, hint) {
			t.Errorf("orrery %s printed:\n%s\nwant %q and %q", strings.Join(args, " "), got, want, hint)
		}
	}
	login := []string{"login", g.url, "--username", "admin", "--password-file", c.PasswordFile()}
	says("the authority that signed its certificate is unknown here", "--ca FILE", login...)
	says("logged in to "+g.url, "", append(login, "--ca", a.file)...)
	says("lobby", "", "get", "groups")
	says("OK", "the certificate of "+g.url+" is valid", "doctor")
	says("its certificate is for another name", "use a URL with a name that the certificate has", "get", "groups", "--server", strings.Replace(g.url, "127.0.0.1", "localhost", 1), "--ca", a.file)
	says("the server speaks HTTP, not HTTPS", "use http://", "get", "groups", "--server", strings.Replace(c.API(), "http://", "https://", 1))
	says("speaks HTTPS, not HTTP", "use https://", "get", "groups", "--server", strings.Replace(g.url, "https://", "http://", 1))
	says("no such file", "--ca FILE", "get", "groups", "--ca", filepath.Join(dir, "missing.pem"))
}

func TestAGatewayBeyondLoopbackNeedsTLSOrASetting(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	cmd := exec.CommandContext(cluster.Bounded(t), cluster.Program(t, "./apigateway/cmd/apigateway"),
		"--listen", ":0", "--etcd-endpoints", c.Etcd(), "--cluster-secret-file", c.SecretFile(), "--seal-key-file", c.SealKeyFile(), "--admin-password-file", filepath.Join(t.TempDir(), "password"))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("ended with %v", err)
	}
	for _, setting := range []string{"tls.cert", "tls.key", "tls.acme.hosts", "behind-proxy", "insecure-http", "127.0.0.1"} {
		if !strings.Contains(string(out), setting) {
			t.Errorf("the error does not name %s: %s", setting, out)
		}
	}
	g := startGateway(t, c, admin, "open", "--listen", ":0", "--insecure-http")
	if log := g.log(t); !strings.Contains(log, "insecure-http permits") {
		t.Errorf("the log does not warn: %s", log)
	}
	if _, body := get(t, http.DefaultClient, g.url+"/api/v1/overview", admin.Token()); !strings.Contains(body, `"insecureHttp":true`) {
		t.Errorf("the overview: %s", body)
	}
	doctor := exec.CommandContext(cluster.Bounded(t), cluster.Program(t, "./cli/cmd/orrery"), "doctor", "--server", g.url)
	doctor.Env = append(os.Environ(), "ORRERY_CONFIG="+filepath.Join(t.TempDir(), "config.yaml"), "ORRERY_TOKEN="+admin.Token())
	report, _ := doctor.CombinedOutput() // other checks may fail
	if !strings.Contains(string(report), "serves other machines without TLS, as insecure-http permits") {
		t.Errorf("orrery doctor printed:\n%s", report)
	}
	startGateway(t, c, admin, "proxied", "--listen", ":0", "--behind-proxy", "192.0.2.1")
}
