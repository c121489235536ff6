package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/libs/pki"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// run runs a command of pki and checks its exit code.
func run(t *testing.T, code int, args ...string) clitest.Result {
	t.Helper()
	got := clitest.Run(t, Commands, "", "", append([]string{"pki"}, args...)...)
	if got.Code != code {
		t.Errorf("pki %s: exit code %d, want %d:\n%s", strings.Join(args, " "), got.Code, code, got)
	}
	return got
}

func TestIssuedBundlesAreUsable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	run(t, exit.OK, "init", "--dir", dir)
	run(t, exit.OK, "issue", "nodeagent/node-1", "--dir", dir, "--days", "2")
	text, err := os.ReadFile(filepath.Join(dir, "nodeagent-node-1.pem"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := pki.ParseBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.VerifyOwn(time.Now()); err != nil || b.Identity() != (pki.Identity{Service: pki.Agent, Name: "node-1"}) {
		t.Errorf("%v, %v", b.Identity(), err)
	}
	if left := time.Until(b.NotAfter()); left > 2*day || left < day {
		t.Errorf("it expires in %v, want 2 days", left)
	}
	for _, file := range []string{authorityFile, authorityCert, "nodeagent-node-1.pem"} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", file, info.Mode(), err)
		}
	}
	got := run(t, exit.OK, "show", filepath.Join(dir, "nodeagent-node-1.pem"))
	if !strings.Contains(got.Out, "spiffe://orrery/nodeagent/node-1") {
		t.Errorf("show prints %q", got.Out)
	}
	if got := run(t, exit.OK, "show", filepath.Join(dir, "nodeagent-node-1.pem"), "-o", "name"); got.Out != "nodeagent/node-1\n" {
		t.Errorf("-o name prints %q", got.Out)
	}
}

func TestEtcdGetsACertificateWithItsHosts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	run(t, exit.OK, "init", "--dir", dir)
	if got := run(t, exit.Usage, "issue", "etcd", "--dir", dir); !strings.Contains(got.Err, "--host") {
		t.Errorf("the hint is missing: %s", got.Err)
	}
	run(t, exit.OK, "issue", "etcd/one", "--dir", dir, "--host", "etcd.test", "--host", "192.0.2.7")
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "etcd-one.crt"), filepath.Join(dir, "etcd-one.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"etcd.test", "192.0.2.7"} {
		if err := pair.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

func TestABundleMayTrustASecondAuthority(t *testing.T) {
	dir := t.TempDir()
	run(t, exit.OK, "init", "--dir", filepath.Join(dir, "old"), "--name", "old")
	run(t, exit.OK, "init", "--dir", filepath.Join(dir, "new"), "--name", "new")
	out := filepath.Join(dir, "gateway.pem")
	for _, file := range []string{authorityCert, authorityFile} {
		run(t, exit.OK, "issue", "apigateway", "--dir", filepath.Join(dir, "old"), "--trust", filepath.Join(dir, "new", file), "--out", out, "--force")
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		b, err := pki.ParseBundle(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(b.Names(), " "); got != "old old nodes new" {
			t.Errorf("it trusts %q", got)
		}
	}
}

func TestTheAuthorityOfNodesIssuesForNodesOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	run(t, exit.OK, "init", "--dir", dir)
	run(t, exit.OK, "issue", "nodeagent/node-1", "--dir", dir, "--through-gateways")
	run(t, exit.OK, "issue", "apigateway", "--dir", dir)
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	gateway, err := pki.ParseBundle(read("apigateway.pem"))
	if err != nil {
		t.Fatal(err)
	}
	node, err := pki.ParseBundle(read("nodeagent-node-1.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.Verify([]*x509.Certificate{node.Certificate().Leaf}, pki.Call, time.Now()); err != nil {
		t.Errorf("a gateway refuses the node: %v", err)
	}
	forEtcd := x509.NewCertPool()
	forEtcd.AppendCertsFromPEM(read(authorityCert))
	if _, err := node.Certificate().Leaf.Verify(x509.VerifyOptions{Roots: forEtcd, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("etcd would accept the node's certificate")
	}
}

func TestAnOlderDirectoryGetsAnAuthorityOfNodes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	run(t, exit.OK, "init", "--dir", dir)
	before, err := os.ReadFile(filepath.Join(dir, authorityFile))
	if err == nil {
		err = os.Remove(filepath.Join(dir, nodesFile))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, exit.OK, "init", "--dir", dir); !strings.Contains(got.Err, "issue the certificates of all services again") {
		t.Errorf("%s", got)
	}
	after, err := os.ReadFile(filepath.Join(dir, authorityFile))
	if err != nil || string(after) != string(before) {
		t.Errorf("the authority was replaced: %v", err)
	}
	run(t, exit.OK, "issue", "nodeagent/node-1", "--dir", dir, "--through-gateways")
}

func TestNothingIsReplacedUnasked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	run(t, exit.OK, "init", "--dir", dir)
	run(t, exit.Conflict, "init", "--dir", dir)
	run(t, exit.OK, "issue", "scheduler", "--dir", dir)
	before, err := os.ReadFile(filepath.Join(dir, "scheduler.pem"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, exit.Conflict, "issue", "scheduler", "--dir", dir)
	after, err := os.ReadFile(filepath.Join(dir, "scheduler.pem"))
	if err != nil || string(after) != string(before) {
		t.Errorf("the certificate was replaced: %v", err)
	}
	run(t, exit.OK, "issue", "scheduler", "--dir", dir, "--force")
}

func TestBadInputIsExplained(t *testing.T) {
	dir := t.TempDir()
	run(t, exit.OK, "init", "--dir", filepath.Join(dir, "pki"))
	broken := filepath.Join(dir, "broken.pem")
	if err := os.WriteFile(broken, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"issue nobody", exit.Usage, "use one of apigateway"},
		{"issue nodeagent", exit.Usage, "needs the id of its node"},
		{"issue nodeagent/a/b", exit.Usage, "cannot be a name"},
		{"issue scheduler --dir nowhere", exit.NotFound, "make it: orrery pki init --dir nowhere"},
		{"issue scheduler --trust broken.pem", exit.Failed, "found none"},
		{"issue scheduler --through-gateways", exit.Usage, "is for a nodeagent"},
		{"issue etcd --host etcd-1 --trust broken.pem", exit.Usage, "--trusted-ca-file"},
		{"issue scheduler --days 0", exit.Usage, "days"},
		{"init --dir other --days -1", exit.Usage, "days"},
		{"show broken.pem", exit.Failed, "not PEM"},
		{"show absent.pem", exit.Failed, "no such file"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Chdir(dir)
			if got := run(t, c.code, strings.Fields(c.args)...); !strings.Contains(got.Err, c.says) {
				t.Errorf("it says %q, want %q", got.Err, c.says)
			}
		})
	}
}

func TestShowFailsForABundleThatServicesRefuse(t *testing.T) {
	now := time.Now()
	authority, err := pki.NewAuthority("test", now.Add(-2*day), now.Add(day))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Request{
		Name: "scheduler", Identity: pki.Identity{Service: pki.Scheduler}, Server: true, Client: true, Now: now.Add(-2 * day), Until: now.Add(-day),
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "expired.pem")
	if err := os.WriteFile(path, pki.NewBundle(pair, authority.Pair().Cert), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, exit.Failed, "show", path)
	if !strings.Contains(got.Out, "spiffe://orrery/scheduler") || !strings.Contains(got.Err, "expired at") || !strings.Contains(got.Err, "orrery pki issue scheduler --force") {
		t.Errorf("%s", got)
	}
}
