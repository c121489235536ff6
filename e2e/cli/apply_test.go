package cli_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/cluster/proxy"
	"github.com/orreryhq/orrery/libs/await"
)

// documents is how many documents the tests of apply have.
const documents = 30

// writeDocuments writes groups, roles and networks into a directory. version differs between two applies.
func writeDocuments(t *testing.T, dir string, version int) {
	t.Helper()
	for n := range documents {
		text := fmt.Sprintf("kind: Group\nname: many%02d\ncommand: exec cat\nmaxInstances: %d\nmemoryMb: 16\nlabels: {version: v%d}\n", n, version, version)
		switch n % 10 {
		case 8:
			text = fmt.Sprintf("kind: Role\nname: many%02d\npermissions: [groups.view, %s]\n", n, []string{"nodes.view", "instances.view"}[version%2])
		case 9:
			text = fmt.Sprintf("kind: Network\nname: many%02d\nlobbyGroup: many00\ndescription: version %d\n", n, version)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("many%02d.yaml", n)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// behindProxy is a cluster whose etcd is reached through a proxy.
type behindProxy struct {
	cluster.Local
	etcd string
}

func (c behindProxy) Etcd() string { return c.etcd }

// cuttable returns the cluster with an etcd that the proxy can cut off.
func cuttable(t *testing.T, c cluster.Local) (cluster.Local, *proxy.Proxy) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(listener, func(ctx context.Context) (net.Conn, error) {
		network, address := "tcp", strings.TrimPrefix(c.Etcd(), "http://")
		if path, ok := strings.CutPrefix(address, "unix://"); ok {
			network, address = "unix", path
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	t.Cleanup(p.Close)
	return behindProxy{c, "http://" + p.Address()}, p
}

// applied reads what apply printed: one line for each document that it got to.
func applied(stdout, verb string) int {
	count := 0
	for line := range strings.Lines(stdout) {
		if strings.HasSuffix(strings.TrimSpace(line), " "+verb) {
			count++
		}
	}
	return count
}

func TestApplyWhileGatewaysAndEtcdFail(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	cut, link := cuttable(t, c)
	first, second := cluster.AddGateway(t, c, admin, "first"), cluster.AddGateway(t, c, admin, "second")
	third := cluster.AddGateway(t, cut, admin, "third")
	u := newUser(t)
	dir := filepath.Join(u.home, "many")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for version, fault := range []struct {
		what     string
		gateways []cluster.Cluster
		hurt     func()
	}{
		{"the death of a gateway while objects are created", []cluster.Cluster{first, c}, first.Kill},
		{"the death of a gateway while objects are changed", []cluster.Cluster{second, c}, second.Kill},
		{"an outage of etcd", []cluster.Cluster{third}, func() {
			link.Set(proxy.Fault{CutUp: true, CutDown: true})
			await.That(t, "a gateway that notices", func() string {
				r, err := cluster.Anonymous(t, third).Try(t.Context(), "GET", "/readyz", nil)
				return await.Unless(err == nil && r.Status != 200, "%v, %v", r, err)
			})
			link.Set(proxy.Fault{})
		}},
	} {
		u.logIn(fault.gateways[0], fault.gateways[1:]...)
		writeDocuments(t, dir, version+2)
		cmd := u.start("apply", "-f", dir)
		cmd.awaits("ten documents", func(stdout, _ string) bool { return strings.Count(stdout, "\n") >= 10 })
		fault.hurt()
		r := cmd.wait()
		if strings.Contains(r.stdout+r.stderr, "conflict") {
			t.Errorf("%s: a conflict that nobody caused:\n%s%s", fault.what, r.stdout, r.stderr)
		}
		done := applied(r.stdout, "created") + applied(r.stdout, "configured") + applied(r.stdout, "unchanged")
		if r.code == 0 && done != documents {
			t.Errorf("%s: %d documents were applied:\n%s%s", fault.what, done, r.stdout, r.stderr)
		}
		if r.code != 0 { // then it names what failed, and counts what it did not try
			t.Logf("%s: exit code %d\n%s%s", fault.what, r.code, r.stdout, r.stderr)
			failed, rest := applied(r.stdout, "failed"), 0
			for line := range strings.Lines(r.stderr) {
				_, _ = fmt.Sscanf(line, "the other %d documents were not tried", &rest)
			}
			if done+failed+rest != documents || failed == 0 {
				t.Errorf("%s: of %d documents %d were applied, %d failed and %d were not tried", fault.what, documents, done, failed, rest)
			}
		}
		if got := u.ok("apply", "-f", dir); strings.Count(got, "\n") != documents {
			t.Errorf("%s: the second apply prints\n%s", fault.what, got)
		}
		if got := u.ok("apply", "-f", dir); applied(got, "unchanged") != documents {
			t.Errorf("%s: the third apply prints\n%s", fault.what, got)
		}
		if got := u.ok("get", "groups", "--filter", fmt.Sprintf("maxInstances=%d", version+2), "-o", "name"); strings.Count(got, "\n") != documents*8/10 {
			t.Errorf("%s: the groups of the last version are\n%s", fault.what, got)
		}
	}
}
