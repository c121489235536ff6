package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/standalone/stack"
)

// boundless limits every wait of a family. It is not a measurement.
const boundless = 3 * time.Minute

// running is a site of separate processes with a view of its store.
type running struct {
	*site.Site
	dir    string
	http   *http.Client
	token  string
	client *store.Client
	view   *view.View
	stop   func()
}

// threeNodes is a site with two replicas of the deciding services and three nodes, each
// with its own network. oneNode has one of each and no separate network.
var (
	threeNodes = site.Options{Schedulers: 2, Enforcers: 2, Nodes: 3, MemoryMiB: 100_000, CPU: 100_000, Namespaces: true}
	oneNode    = site.Options{Schedulers: 1, Enforcers: 1, Nodes: 1, MemoryMiB: 1_000_000, CPU: 1_000_000}
)

// startSite runs a site with the default TTL, and waits until groups can be created.
func (b *bench) startSite(ctx context.Context, o site.Options) (*running, error) {
	r := &running{http: &http.Client{}, stop: func() {}}
	if err := r.start(ctx, b.dir, o); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *running) start(ctx context.Context, scratch string, o site.Options) (err error) {
	if r.dir, err = os.MkdirTemp(scratch, "site-"); err != nil {
		return err
	}
	programs, err := site.Build(ctx, filepath.Join(scratch, "bin"), false, site.Packages()...)
	if err != nil {
		return err
	}
	o.Dir, o.Programs, o.Members, o.Gateways, o.Sources = r.dir, programs, 1, 1, 1
	if r.Site, err = site.Start(ctx, o); err != nil {
		return err
	}
	if err := r.follow(ctx); err != nil {
		return err
	}
	if err := r.login(ctx); err != nil {
		return err
	}
	_, err = r.until(ctx, "all nodes", func(s *view.Snapshot) bool { return s.NodeSessions.Len() == o.Nodes })
	return err
}

// follow lets the view follow the store over a new connection.
func (r *running) follow(ctx context.Context) error {
	client, err := store.Dial(r.Endpoints(), store.Options{})
	if err != nil {
		return err
	}
	r.stop()
	v := view.New(client, nil)
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var followed sync.WaitGroup
	followed.Go(func() { _ = v.Run(following) })
	r.client, r.view = client, v
	r.stop = func() {
		cancel()
		followed.Wait()
		_ = client.Close()
	}
	return nil
}

func (r *running) close() {
	r.stop()
	if r.Site != nil {
		_ = r.Close()
	}
}

func (r *running) login(ctx context.Context) error {
	var err error
	for deadline := time.Now().Add(boundless); time.Now().Before(deadline); {
		if r.token, err = stack.Login(ctx, r.Gateways()[0], "admin", r.PasswordFile()); err == nil {
			return nil
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return err
}

func (r *running) call(ctx context.Context, method, path string, body any) error {
	return wire.Call(ctx, r.http, wire.Request{Method: method, URL: r.Gateways()[0] + path, Token: r.token, Body: body}, nil)
}

// declare creates a group of arena servers.
func (r *running) declare(ctx context.Context, b *bench, group string, minimum int) error {
	return r.declareWith(ctx, b, group, minimum, nil)
}

// declareWith is declare with additional fields of the spec.
func (r *running) declareWith(ctx context.Context, b *bench, group string, minimum int, further map[string]any) error {
	spec := map[string]any{
		"name": group, "command": "exec " + b.arena + " -port %PORT%", "readiness": map[string]any{"type": "port"},
		"memoryMb": 16, "minInstances": minimum, "maxInstances": 0, "portRangeStart": 20000, "portRangeEnd": 29999,
	}
	maps.Copy(spec, further)
	return r.call(ctx, http.MethodPost, "/api/v1/groups", spec)
}

// until waits for a condition on the store.
func (r *running) until(ctx context.Context, what string, ok func(*view.Snapshot) bool) (*view.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, boundless)
	defer cancel()
	for {
		s := r.view.Snapshot()
		if ok(s) {
			return s, nil
		}
		if _, err := r.view.WaitRev(ctx, s.Rev+1); err != nil {
			return nil, fmt.Errorf("waiting for %s: %w; see %s", what, err, filepath.Join(r.dir, "logs"))
		}
	}
}

// owner returns the process that owns a group's shard.
func (r *running) owner(ctx context.Context, service string, group fleet.GroupName) (*site.Process, error) {
	for {
		shard, err := store.Get(ctx, r.client, keys.Shard(service, fleet.ShardOf(group)))
		if err == nil {
			return r.Process(shard.Replica), nil
		}
		if !pause.For(ctx, 10*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// serving returns the serving instances of a group.
func serving(s *view.Snapshot, group fleet.GroupName) (out []*fleet.Instance) {
	for i := range s.GroupInstances(group) {
		if i.State() == fleet.Online {
			out = append(out, i)
		}
	}
	return out
}
