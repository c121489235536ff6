// Package programtest holds the tests that every service's program passes.
package programtest

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/clock"
	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// Run runs a service's program with its arguments, without its name, and its environment, and returns
// the exit code.
type Run func(args, env []string, stdout, stderr io.Writer) int

// RefusesOtherClusters checks that a program fails to start if etcd belongs to another cluster, says
// why, and writes nothing. args are additional arguments of the program.
func RefusesOtherClusters(t *testing.T, run Run, args ...string) {
	own, other := ownSecret, strings.Repeat("other", 7)
	ours, foreign, newer := etcdOf(t, own, time.Now()), etcdOf(t, other, time.Now()), storetest.Start(t)
	meta := store.Create(keys.Meta(), cluster.Meta{Schema: keys.Schema + 1, ClusterID: "newer"})
	if _, err := newer.Client(t).Commit(t.Context(), store.Txn{Writes: []store.Write{meta}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		etcd   *storetest.Etcd
		secret string
		says   string
	}{
		{"another secret", ours, other, "cluster.secret differs from the secret of cluster "},
		{"the etcd of another cluster", foreign, own, "check etcd.endpoints if it belongs to another cluster"},
		{"an etcd with a newer schema", newer, own, "newer than the "},
	} {
		t.Run(c.name, func(t *testing.T) {
			secret := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(secret, []byte(c.secret), 0o600); err != nil {
				t.Fatal(err)
			}
			before := revision(t, c.etcd)
			var out bytes.Buffer
			code := make(chan int, 1)
			go func() {
				code <- run(append([]string{"--etcd-endpoints", c.etcd.Endpoint, "--cluster-secret-file", secret}, args...), nil, &out, &out)
			}()
			select {
			case got := <-code:
				if got != config.ExitUsage || !strings.Contains(out.String(), c.says) {
					t.Errorf("exit code %d, want %d and %q:\n%s", got, config.ExitUsage, c.says, &out)
				}
			case <-time.After(await.Patience):
				t.Fatal("it runs on")
			}
			if after := revision(t, c.etcd); after != before {
				t.Errorf("it wrote to etcd: revision %d, before %d", after, before)
			}
		})
	}
}

// TakesItsClock checks that a program's timestamps use the clock from its environment. startedAt reads
// the start time from the program's session.
func TakesItsClock(t *testing.T, run Run, startedAt func(context.Context, *store.Client) (time.Time, error), args ...string) {
	const ahead = 12 * time.Hour
	etcd := etcdOf(t, ownSecret, time.Now())
	began := time.Now()
	p := start(t, run, etcd, []string{clock.Variable + "=" + ahead.String()}, args)
	c := etcd.Client(t)
	await.That(t, "a session that began 12 hours ahead", func() string {
		p.runs()
		at, err := startedAt(t.Context(), c)
		return await.Unless(err == nil && !at.Before(began.Add(ahead)), "it began %v after the test, %v", at.Sub(began), err)
	})
	p.stop()
}

// WarnsOfHistory checks that a program warns at its start if etcd was never compacted.
func WarnsOfHistory(t *testing.T, run Run, args ...string) {
	p := start(t, run, etcdOf(t, ownSecret, time.Now().Add(-24*time.Hour)), nil, args)
	await.That(t, "a warning of etcd's history", func() string {
		p.runs()
		return await.Unless(strings.Contains(p.out.String(), "etcd has never compacted its history"), "%s", &p.out)
	})
	p.stop()
}

const ownSecret = "0123456789abcdef0123456789abcdef"

// started is a running program.
type started struct {
	t    *testing.T
	out  await.Text
	done chan struct{}
	code int // valid after done
}

func start(t *testing.T, run Run, etcd *storetest.Etcd, env, args []string) *started {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(ownSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &started{t: t, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.code = run(append([]string{"--etcd-endpoints", etcd.Endpoint, "--cluster-secret-file", secret, "--replica", "r"}, args...), env, &p.out, &p.out)
	}()
	return p
}

// runs checks that the program has not ended.
func (p *started) runs() {
	p.t.Helper()
	select {
	case <-p.done:
		p.t.Fatalf("it ended with exit code %d:\n%s", p.code, &p.out)
	default:
	}
}

// stop ends the program, and every other program that runs in the test.
func (p *started) stop() {
	p.t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.done:
		if p.code != config.ExitOK {
			p.t.Errorf("exit code %d:\n%s", p.code, &p.out)
		}
	case <-time.After(await.Patience):
		p.t.Fatal("it runs on")
	}
}

// OfReplica reads the start time of the service's replica r.
func OfReplica(service string) func(context.Context, *store.Client) (time.Time, error) {
	return func(ctx context.Context, c *store.Client) (time.Time, error) {
		s, err := store.Get(ctx, c, keys.Session(service, "r"))
		return s.StartedAt, err
	}
}

// etcdOf starts an etcd with a cluster that has a secret.
func etcdOf(t *testing.T, secret string, made time.Time) *storetest.Etcd {
	t.Helper()
	etcd := storetest.Start(t)
	c, err := store.Dial([]string{etcd.Endpoint}, store.Options{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Join(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return etcd
}

func revision(t *testing.T, etcd *storetest.Etcd) int64 {
	t.Helper()
	rev, err := etcd.Client(t).Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rev
}
