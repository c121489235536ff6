package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/cluster/proxy"
	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/pki"
)

// load are calls that let gateways call every kind of service, through two gateways in turn.
type load struct {
	calls, repeated atomic.Int64
	stop            func()
}

// attempts is how often a client tries a call.
const attempts = 100

func startLoad(t *testing.T, admin *cluster.Client, gateways ...cluster.Cluster) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	l := &load{stop: sync.OnceFunc(func() { cancel(); running.Wait() })}
	t.Cleanup(l.stop)
	for _, call := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/api/v1/services?all=true", nil},
		{"POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":1}}`},                        // scheduler
		{"POST", "/api/v1/services/lobby-1/command", map[string]string{"command": "line"}},           // agent
		{"PUT", "/api/v1/templates/load/files/content?path=a.txt", map[string]any{"content": "a\n"}}, // templatesvc
		{"GET", "/api/v1/templates/load/files/content?path=a.txt", nil},                              // templatesvc
	} {
		running.Go(func() {
			at := 0
			for ctx.Err() == nil {
				said := ""
				for n := range attempts {
					within, done := context.WithTimeout(ctx, await.Patience)
					reply, err := admin.Through(gateways[at%len(gateways)]).Try(within, call.method, call.path, call.body)
					done()
					if ctx.Err() != nil || err == nil && reply.Status < 300 {
						break
					}
					l.repeated.Add(1)
					if said = fmt.Sprint(err); err == nil {
						said = fmt.Sprint(reply.Status, " ", string(reply.Body))
					}
					t.Logf("%s %s, attempt %d: %s", call.method, call.path, n+1, said)
					if n == attempts-1 {
						t.Errorf("%s %s failed %d times: %s", call.method, call.path, attempts, said)
						return
					}
					at++
					pauseFor(ctx, 100*time.Millisecond)
				}
				l.calls.Add(1)
				at++
				pauseFor(ctx, 20*time.Millisecond)
			}
		})
	}
	return l
}

// pauseFor is the pause of a client between two calls.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// holders are the services of a cluster with certificates, by the names of their files in the directory pki.
var holders = map[string]pki.Identity{
	"apigateway-apigateway-1":   {Service: pki.Gateway, Name: "apigateway-1"},
	"apigateway-second":         {Service: pki.Gateway, Name: "second"},
	"scheduler-scheduler-1":     {Service: pki.Scheduler, Name: "scheduler-1"},
	"enforcer-enforcer-1":       {Service: pki.Enforcer, Name: "enforcer-1"},
	"templatesvc-templatesvc-1": {Service: pki.Templates, Name: "templatesvc-1"},
	"nodeagent-node-1":          {Service: pki.Agent, Name: "node-1"},
}

// another is another gateway of a cluster.
type another struct {
	cluster.Cluster
	api string
}

func (a another) API() string { return a.api }

// freeAddress returns an address at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// authorityIn reads an authority from a file.
func authorityIn(t *testing.T, path string) *pki.Authority {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.ParsePair(text)
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.LoadAuthority(pair)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issueFor replaces the file of a service, as orrery pki issue and mv do.
func issueFor(t *testing.T, path string, who pki.Identity, end time.Time, by *pki.Authority, trusted ...*pki.Authority) {
	t.Helper()
	p, err := by.Issue(pki.Request{Name: who.Path(), Identity: who, Server: true, Client: true, Now: end.Add(-24 * time.Hour), Until: end})
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for _, a := range trusted {
		all = append(all, a.Pair().Cert)
	}
	if err := os.WriteFile(path+".new", pki.NewBundle(p, all...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Every connection between services changes its certificate, and then its authority, while clients call.
func TestTheAuthorityOfServicesIsReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	direct := func(_ site.Pair, dial proxy.Dial) proxy.Dial { return dial }
	c := cluster.Start(t, cluster.Options{Wrap: direct}) // so that etcd uses TLS
	first := cluster.Service(c, "apigateway-1")
	if first == nil {
		return // all services run in one process
	}
	admin := cluster.Login(t, c)
	dir := filepath.Join(c.DataDir(), "pki")
	file := func(name string) string { return filepath.Join(dir, name+".pem") }
	old, nodes := authorityIn(t, file("authority")), authorityIn(t, file("nodes"))
	brief := []string{"--services-certificate-life", "1m", "--nodes-certificate-life", "1m"}
	other := another{c, "http://" + freeAddress(t)}
	second := site.NewProcess("second", cluster.Program(t, "./apigateway/cmd/apigateway"), filepath.Join(t.TempDir(), "second.log"), append(append(brief, c.Trust(holders["apigateway-second"])...),
		"--services-authority", file("authority"), "--nodes-listen", "127.0.0.1:0", "--nodes-authority", file("nodes"),
		"--replica", "second", "--listen", strings.TrimPrefix(other.api, "http://"), "--etcd-endpoints", c.Etcd(), "--cluster-secret-file", c.SecretFile(), "--seal-key-file", c.SealKeyFile(),
		"--admin-password-file", filepath.Join(t.TempDir(), "password"), "--limits-anonymous", "0", "--log-level", "debug")...)
	t.Cleanup(func() {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	})
	start := func(p *site.Process, at cluster.Cluster) {
		t.Helper()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		await.That(t, p.Name+" ready", func() string {
			reply, err := cluster.Anonymous(t, at).Try(cluster.Bounded(t), "GET", "/readyz", nil)
			return await.Unless(err == nil && reply.Status == 200, "%v", err)
		})
	}
	restart := func(p *site.Process, at cluster.Cluster, flags ...string) {
		t.Helper()
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		p.AddFlags(flags...)
		start(p, at)
	}
	// restartEtcd lets etcd present a certificate of one authority, and trust some.
	restartEtcd := func(by *pki.Authority, trusted ...*pki.Authority) {
		t.Helper()
		who := pki.Identity{Service: pki.Etcd}
		p, err := by.Issue(pki.Request{Name: who.Path(), Identity: who, Hosts: []string{"127.0.0.1"}, Server: true, Client: true, Now: time.Now(), Until: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for _, a := range trusted {
			all = append(all, a.Pair().Cert...)
		}
		for name, text := range map[string][]byte{"etcd.crt": p.Cert, "etcd.key": p.Key, "authority.crt": all} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		etcd := cluster.Service(c, "etcd-1")
		if err := etcd.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := etcd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	start(second, other)
	restart(first, c, brief...)

	admin.Do("POST", "/api/v1/templates", map[string]any{"name": "load"}).OK(201)
	admin.Do("PUT", "/api/v1/templates/load/files/content?path=a.txt", map[string]any{"content": "a\n"}).OK(200)
	createGroup(t, admin, catGroup("lobby", map[string]any{"minInstances": 2}))
	pids := map[string]int{}
	for _, i := range admin.AwaitRunning("lobby", 2) {
		pids["instance "+i.ID] = i.PID
	}
	for _, name := range []string{"scheduler-1", "enforcer-1", "templatesvc-1", "node-1"} {
		pids[name] = cluster.Service(c, name).PID()
	}
	clients := startLoad(t, admin, c, other)
	// each waits until all files fulfil a condition.
	each := func(what string, fulfils func(*pki.Bundle) bool) {
		t.Helper()
		await.That(t, what, func() string {
			var missing []string
			for name := range holders {
				if b := bundleIn(t, file(name)); !fulfils(b) {
					missing = append(missing, fmt.Sprint(name, " trusts ", b.Names(), " until ", b.NotAfter()))
				}
			}
			slices.Sort(missing)
			return strings.Join(missing, "\n")
		})
		t.Logf("%s: %d calls, %d of them repeated", what, clients.calls.Load(), clients.repeated.Load())
	}

	end := time.Now().Add(2 * time.Minute) // services look at their files once a minute
	for name, who := range holders {
		by := old
		if who.Service == pki.Agent {
			by = nodes
		}
		issueFor(t, file(name), who, end, by, old, nodes)
	}
	each("certificates that outlive the first ones", func(b *pki.Bundle) bool { return b.NotAfter().After(end) && time.Now().After(end) })
	if n := clients.repeated.Load(); n > 0 {
		t.Errorf("%d calls failed while the certificates were renewed", n)
	}

	next, err := pki.NewAuthority("next", time.Now(), time.Now().Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("next"), slices.Concat(next.Pair().Cert, next.Pair().Key), 0o600); err != nil {
		t.Fatal(err)
	}
	gateways := []string{"apigateway-apigateway-1", "apigateway-second"}
	for _, name := range gateways {
		issueFor(t, file(name), holders[name], time.Now().Add(time.Minute), old, old, next, nodes)
	}
	restartEtcd(old, old, next)
	each("both authorities", func(b *pki.Bundle) bool { return b.Trusts(next.Pair().Cert) && b.Trusts(old.Pair().Cert) })

	restartEtcd(next, old, next)
	for i, p := range []*site.Process{first, second} {
		issueFor(t, file(gateways[i]), holders[gateways[i]], time.Now().Add(time.Minute), next, old, next, nodes)
		restart(p, []cluster.Cluster{c, other}[i], "--services-authority", file("next"))
	}
	issuer := bundleIn(t, file(gateways[0])).Issuer()
	each("certificates of the next authority", func(b *pki.Bundle) bool { return b.Issuer() == issuer || b.Identity().Service == pki.Agent })

	for _, name := range gateways {
		issueFor(t, file(name), holders[name], time.Now().Add(time.Minute), next, next, nodes)
	}
	each("the next authority only", func(b *pki.Bundle) bool { return b.Trusts(next.Pair().Cert) && !b.Trusts(old.Pair().Cert) })
	restartEtcd(next, next)
	// A start lets every service act with its new certificate.
	admin.Do("POST", "/api/v1/groups/lobby/start", map[string]int{"count": 1}).OK(200)
	admin.AwaitRunning("lobby", 3)
	clients.stop()

	for what, pid := range pids {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("%s with pid %d: %v", what, pid, err)
		}
	}
	for _, i := range admin.AwaitRunning("lobby", 3) {
		if was, ok := pids["instance "+i.ID]; ok && i.PID != was {
			t.Errorf("%s has pid %d, had %d", i.ID, i.PID, was)
		}
	}
}
