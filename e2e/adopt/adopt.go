// Package adopt repeatedly kills a node's agent while its instances print numbered lines.
// It follows every console by byte offset through the gateway, and counts exits, gaps and
// duplicates.
package adopt

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Options configure a trial.
type Options struct {
	// Dir receives everything that the site writes.
	Dir string
	// Instances is the number of instances. Each prints Rate numbered lines a second. The
	// agent is killed Kills times.
	Instances, Rate, Kills int
	// Seed determines the times of the kills.
	Seed uint64
	// Log is called for each kill.
	Log func(format string, args ...any)
}

// Result is the result of a trial. A changed process counts as an exit.
type Result struct {
	Lines, Exits, Gaps, Duplicates int
	// Back are the times from a kill to the new session with every instance adopted. Kills
	// that hit a starting agent have none.
	Back []time.Duration
}

const (
	group = "printing"
	// patience limits every wait for the site.
	patience = 2 * time.Minute
	look     = 10 * time.Millisecond
	node     = fleet.NodeID("node-1")
)

// Packages returns the commands that a trial needs.
func Packages() []string { return append(site.Packages(), "./examples/arena/cmd/arena") }

// Run starts a site, performs the trial and stops the site.
func Run(ctx context.Context, programs site.Programs, o Options) (r Result, err error) {
	s, err := site.Start(ctx, site.Options{
		Dir: o.Dir, Programs: programs, Members: 1, Schedulers: 1, Enforcers: 1, Gateways: 1, Sources: 1, Nodes: 1,
		MemoryMiB: 64 * (o.Instances + 1), CPU: 100 * (o.Instances + 1),
	})
	defer func() {
		for _, n := range s.Nodes() {
			n.PowerCut()
		}
		if closed := s.Close(); err == nil {
			err = closed
		}
	}()
	if err != nil {
		return r, err
	}
	t := &trial{o: o, site: s, http: &http.Client{Timeout: 10 * time.Second}}
	defer t.http.CloseIdleConnections()
	if t.store, err = store.Dial(s.Endpoints(), store.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
		return r, err
	}
	defer t.store.Close()
	if err := t.declare(ctx, programs["arena"]); err != nil {
		return r, err
	}
	return t.run(ctx)
}

// trial is one run.
type trial struct {
	o     Options
	site  *site.Site
	http  *http.Client
	store *store.Client
	token string
}

// instance identifies the process of an instance.
type instance struct {
	UID, State string
	PID        int
	started    string
}

// declare creates the group and waits until all instances print.
func (t *trial) declare(ctx context.Context, arena string) error {
	if err := await(ctx, "a login", func() error { return t.login(ctx) }); err != nil {
		return err
	}
	spec := map[string]any{
		"name": group, "command": fmt.Sprintf("exec %s --port 0 --print-lines %d", arena, t.o.Rate), "memoryMb": 32,
		"minInstances": t.o.Instances, "maxInstances": 0,
	}
	if err := await(ctx, "the group", func() error { return t.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil) }); err != nil {
		return err
	}
	return await(ctx, "all instances", func() error {
		all, err := t.instances(ctx)
		if err == nil && len(all) != t.o.Instances {
			err = fmt.Errorf("%d of %d run", len(all), t.o.Instances)
		}
		return err
	})
}

func (t *trial) login(ctx context.Context) error {
	password, err := os.ReadFile(t.site.PasswordFile())
	if err != nil {
		return err
	}
	var answer struct{ Token string }
	err = t.call(ctx, http.MethodPost, "/api/v1/auth/login", map[string]string{"username": "admin", "password": strings.TrimSpace(string(password))}, &answer)
	t.token = answer.Token
	return err
}

func (t *trial) call(ctx context.Context, method, path string, body, into any) error {
	return wire.Call(ctx, t.http, wire.Request{Method: method, URL: t.site.Gateways()[0] + path, Token: t.token, Body: body}, into)
}

// instances returns the running instances by ID, with the start time of their process.
func (t *trial) instances(ctx context.Context) (map[string]instance, error) {
	var page struct{ Data []instance }
	if err := t.call(ctx, http.MethodGet, "/api/v1/services?pageSize=500&group="+group, nil, &page); err != nil {
		return nil, err
	}
	all := map[string]instance{}
	for _, i := range page.Data {
		if i.State == "RUNNING" {
			i.started = startTime(i.PID)
			all[i.UID] = i
		}
	}
	return all, nil
}

// startTime returns the kernel's start time of a process; empty when the process does not
// exist.
func startTime(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return ""
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[19]
}

// run kills the agent while the readers read.
func (t *trial) run(ctx context.Context) (r Result, err error) {
	before, err := t.instances(ctx)
	if err != nil {
		return r, err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var readers []*reader
	var all sync.WaitGroup
	for uid := range before {
		rd := &reader{trial: t, uid: uid}
		readers = append(readers, rd)
		all.Go(func() { rd.run(reading) })
	}
	r.Back, err = t.kill(ctx, before)
	if err == nil {
		err = t.catchUp(ctx, readers)
	}
	stop()
	all.Wait()
	for _, rd := range readers {
		r.Lines, r.Gaps, r.Duplicates = r.Lines+rd.last, r.Gaps+rd.gaps, r.Duplicates+rd.duplicates
	}
	if err != nil {
		return r, err
	}
	after, err := t.instances(ctx)
	for uid, was := range before {
		if after[uid] != was {
			r.Exits++
		}
	}
	return r, err
}

// kill kills the agent at random moments, also while it starts.
func (t *trial) kill(ctx context.Context, all map[string]instance) (back []time.Duration, err error) {
	rng := rand.New(rand.NewPCG(t.o.Seed, 0))
	agent := t.site.Nodes()[0]
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	for n := range t.o.Kills {
		session, err := store.Get(ctx, t.store, keys.NodeSession(node))
		if err != nil && !errs.Is(err, errs.NotFound) { // an agent that was killed while joining has none
			return back, err
		}
		began := time.Now()
		agent.Kill()
		if err := agent.Start(); err != nil {
			return back, err
		}
		if n+1 < t.o.Kills && rng.IntN(3) == 0 { // the next kill hits it while it starts
			t.o.Log("kill %d of %d, soon again", n+1, t.o.Kills)
			pause.For(ctx, upTo(200*time.Millisecond))
			continue
		}
		if err := await(ctx, "the agent back", func() error { return t.adopted(ctx, session.CreateRev, all) }); err != nil {
			return back, err
		}
		back = append(back, time.Since(began))
		t.o.Log("kill %d of %d, back after %v", n+1, t.o.Kills, time.Since(began).Round(time.Millisecond))
		pause.For(ctx, upTo(time.Second))
	}
	return back, ctx.Err()
}

// adopted returns an error until the node has a later session and all its instances.
func (t *trial) adopted(ctx context.Context, session int64, all map[string]instance) error {
	s, err := store.Get(ctx, t.store, keys.NodeSession(node))
	if err != nil {
		return err
	}
	if s.CreateRev == session {
		return fmt.Errorf("the session is still the one before")
	}
	n, err := store.Get(ctx, t.store, keys.Node(node))
	if err != nil {
		return err
	}
	secret, err := os.ReadFile(filepath.Join(t.o.Dir, "cluster-secret"))
	if err != nil {
		return err
	}
	agent := client.New(t.http, n.AgentURL, string(secret))
	for uid := range all {
		i, err := agent.Instance(ctx, fleet.InstanceID(uid))
		if err != nil {
			return err
		}
		if i.State != fleet.Online || i.Reason != fleet.ReasonAdopted {
			return fmt.Errorf("%s is %s (%s)", uid, i.State, i.Reason)
		}
	}
	return nil
}

// catchUp waits until every reader has read lines printed after now.
func (t *trial) catchUp(ctx context.Context, readers []*reader) error {
	return await(ctx, "every console read on", func() error {
		for _, r := range readers {
			if !r.beyond() {
				return fmt.Errorf("%s: %s", r.uid, r.problem())
			}
		}
		return nil
	})
}

// await repeats ask until it succeeds, and returns its last error when patience ends.
func await(ctx context.Context, what string, ask func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("%s did not come: %w", what, err)
		}
		pause.For(ctx, look)
	}
}
