package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/orreryhq/orrery/apigateway"
	"github.com/orreryhq/orrery/enforcer"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/scheduler"
)

const (
	restGroups = 200
	restSecret = "only-for-this-benchmark-0123456789"
	// restStarts is how many agents start concurrently; restReady limits the whole start.
	restStarts = 16
	restReady  = 5 * time.Minute
)

// restFleet is a large fleet in one process, without the instances' processes.
type restFleet struct {
	dir, endpoint string
	store         *store.Client
	// played maps the instances with processes to their nodes.
	played map[fleet.InstanceID]fleet.NodeID

	cancel  context.CancelFunc
	running sync.WaitGroup
	clients []*store.Client
	mu      sync.Mutex
	failed  error
}

func (f *restFleet) stop() {
	if f.cancel != nil {
		f.cancel()
	}
	f.running.Wait()
	for _, c := range f.clients {
		_ = c.Close()
	}
}

// start starts the agents, writes the instances' records and starts the services. stop ends
// everything.
func (f *restFleet) start(ctx context.Context) error {
	ctx, f.cancel = context.WithCancel(ctx)
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return err
	}
	var err error
	if f.store, err = f.dial(); err != nil {
		return err
	}
	if _, err := f.store.Join(ctx, time.Now()); err != nil {
		return err
	}
	if err := f.startAgents(ctx); err != nil {
		return err
	}
	if err := f.seed(ctx); err != nil {
		return err
	}
	return f.startServices(ctx)
}

// dial connects to etcd. It is not safe for concurrent use.
func (f *restFleet) dial() (*store.Client, error) {
	c, err := store.Dial([]string{f.endpoint}, store.Options{})
	if err == nil {
		f.clients = append(f.clients, c)
	}
	return c, err
}

// run runs work until stop, and records an earlier failure.
func (f *restFleet) run(ctx context.Context, name string, work func(context.Context) error) {
	f.running.Go(func() {
		if err := work(ctx); err != nil && ctx.Err() == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.failed = errs.Wrap(name, err)
		}
	})
}

// check reports failures, and whether the instances are still unchanged.
func (f *restFleet) check(ctx context.Context) error {
	f.mu.Lock()
	failed := f.failed
	f.mu.Unlock()
	if failed != nil {
		return failed
	}
	sessions, err := store.Count(ctx, f.store, keys.NodeSessions())
	if err != nil {
		return err
	}
	intents, err := store.Count(ctx, f.store, keys.Intents())
	if err != nil {
		return err
	}
	if sessions != restNodes || intents != restInstances {
		return fmt.Errorf("%d nodes and %d instances are there", sessions, intents)
	}
	return nil
}

func restNode(n int) fleet.NodeID { return fleet.NodeID(fmt.Sprintf("node-%04d", n)) }

// startAgents starts real agents, each with its own connection and directory.
func (f *restFleet) startAgents(ctx context.Context) error {
	deadline := time.After(restReady)
	var starting []<-chan struct{}
	for n := range restNodes {
		client, err := f.dial()
		if err != nil {
			return err
		}
		agent, err := nodeagent.New(nodeagent.Config{
			Store: client, Node: restNode(n), DataDir: filepath.Join(f.dir, string(restNode(n))),
			MemoryMiB: 1_000_000, CPU: 1_000_000, ClusterSecret: restSecret, Templates: noTemplates{},
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		f.run(ctx, string(restNode(n)), agent.Run)
		starting = append(starting, agent.Ready())
		if len(starting) < restStarts && n < restNodes-1 {
			continue
		}
		for _, ready := range starting {
			select {
			case <-ready:
			case <-deadline:
				return fmt.Errorf("%d agents did not join within %v", n, restReady)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		starting = starting[:0]
	}
	return nil
}

// noTemplates provides no templates, because no instance directory is built.
type noTemplates struct{}

func (noTemplates) Manifest(context.Context, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "no templates here")
}

func (noTemplates) Blob(context.Context, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "no templates here")
}

func (noTemplates) Row(context.Context, []string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "no templates here")
}

func (noTemplates) Suspect(context.Context, string) error { return nil }

func (noTemplates) Artifact(context.Context, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "no artifacts here")
}

// seed writes groups and their online instances, in place of enforcer, scheduler and
// agents.
func (f *restFleet) seed(ctx context.Context) error {
	sessions, _, err := store.List(ctx, f.store, keys.NodeSessions())
	if err != nil {
		return err
	}
	f.played = map[fleet.InstanceID]fleet.NodeID{}
	empty := view.New(f.store, nil).Snapshot()
	sp := spawn.New(empty, time.Now(), rand.New(rand.NewPCG(1, 2)))
	for g := range restGroups {
		group := fleet.Group{Name: fleet.GroupName(fmt.Sprintf("group-%03d", g)), Revision: 1, CreatedAt: time.Now().UTC(), Spec: fleet.DefaultSpec()}
		group.Spec.Scaling.Min, group.Spec.Scaling.Max = restInstances/restGroups, restInstances/restGroups
		group.Spec.Command, group.Spec.Resources.MemoryMiB = "exec sleep 100000", 16
		txns := []store.Txn{{Writes: []store.Write{store.Create(keys.Group(group.Name), group)}}}
		var births []spawn.Birth
		for range restInstances / restGroups {
			births = append(births, sp.Fresh(&group, spawn.Cause{Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum}, "", nil))
		}
		txns = append(txns, sp.Txns(births, nil, nil, f.store.MaxOps())...)
		for i, b := range births {
			session := sessions[(g*len(births)+i)%len(sessions)]
			if g < playerGroups {
				session = sessions[(g*len(births)+i)%playerNodes]
				f.played[b.Intent.ID] = session.Node
				txns = append(txns, store.Txn{Writes: []store.Write{store.Create(keys.Placement(session.Node, b.Intent.ID), placementOf(b.Intent, session, 20_000+i))}})
				continue
			}
			txns = append(txns, records(b.Intent, session, 20_000+i))
		}
		for _, txn := range txns {
			if _, err := f.store.Commit(ctx, txn); err != nil {
				return err
			}
		}
	}
	return nil
}

// records returns an online instance's placement and status. The placement is outside of
// the prefix that the agent follows, because there is no process that the agent could find.
func records(in fleet.Intent, s fleet.NodeSession, port int) store.Txn {
	now := time.Now().UTC()
	return store.Txn{Writes: []store.Write{
		store.Create(keys.Placement("seeded-"+s.Node, in.ID), placementOf(in, s, port)),
		store.Create(keys.Status(in.ID), fleet.Status{
			Instance: in.ID, Group: in.Group, Node: s.Node, Generation: 1, Epoch: s.CreateRev, State: fleet.Online,
			Reason: fleet.ReasonReady, PID: 4_000_000 + port, StartedAt: now, OnlineAt: now, ChangedAt: now,
		}),
	}}
}

func placementOf(in fleet.Intent, s fleet.NodeSession, port int) fleet.Placement {
	return fleet.Placement{
		Instance: in.ID, Name: in.Name, Group: in.Group, Node: s.Node, Generation: 1, Plan: in.Plan,
		Resources: fleet.Resources{MemoryMiB: 16}, Port: port, PlacedAt: time.Now().UTC(),
	}
}

// startServices runs one of each service that follows the whole fleet.
func (f *restFleet) startServices(ctx context.Context) error {
	log := slog.New(slog.DiscardHandler)
	var views [3]*view.View
	var clients [3]*store.Client
	for i := range views {
		var err error
		if clients[i], err = f.dial(); err != nil {
			return err
		}
		if _, err := clients[i].Join(ctx, time.Now()); err != nil {
			return err
		}
		views[i] = view.New(clients[i], log)
	}
	sched, err := scheduler.New(scheduler.Config{Store: clients[0], View: views[0], Replica: "a", Log: log})
	if err != nil {
		return err
	}
	enf, err := enforcer.New(enforcer.Config{Store: clients[1], View: views[1], Replica: "a", Log: log})
	if err != nil {
		return err
	}
	gateway, err := apigateway.New(apigateway.Config{
		Store: clients[2], View: views[2], Replica: "a", Log: log, Listen: "127.0.0.1:0",
		ClusterSecret: restSecret, AdminPassword: restSecret,
	})
	if err != nil {
		return err
	}
	for _, v := range views {
		f.run(ctx, "view", v.Run)
		if err := v.Synced(ctx); err != nil {
			return err
		}
	}
	f.run(ctx, "scheduler", sched.Run)
	f.run(ctx, "enforcer", enf.Run)
	f.run(ctx, "apigateway", gateway.Run)
	return nil
}
