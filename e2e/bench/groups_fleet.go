package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/enforcer"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler"
)

// simulation is an etcd with an enforcer, a scheduler and simulated agents, whose instances have no
// processes.
type simulation struct {
	*placeEtcd
	store *store.Client
	view  *view.View

	cancel  context.CancelFunc
	running sync.WaitGroup
	agents  map[fleet.NodeID]*simAgent
	players simPlayers
}

// startSimulation starts a simulation with the given number of nodes.
func (b *bench) startSimulation(ctx context.Context, nodes int) (*simulation, error) {
	e, err := b.startPlaceEtcd()
	if err != nil {
		return nil, err
	}
	s := &simulation{placeEtcd: e, store: e.store(), agents: map[fleet.NodeID]*simAgent{}}
	ctx, s.cancel = context.WithCancel(ctx)
	if err := s.start(ctx, nodes); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *simulation) close() {
	s.cancel()
	s.running.Wait()
	s.stop()
}

func (s *simulation) start(ctx context.Context, nodes int) error {
	if _, err := s.store.Join(ctx, time.Now()); err != nil {
		return err
	}
	s.view = view.New(s.store, nil)
	s.view.Subscribe(s.hear)
	now := time.Now().UTC()
	var writes []store.Write
	for n := range nodes {
		id := placeNode(n)
		writes = append(writes,
			store.Create(keys.Node(id), fleet.Node{
				ID: id, DataUUID: "d-" + string(id), Address: "10.0.0.1", AgentURL: "http://10.0.0.1:7777", Version: "bench",
				Capacity: fleet.Resources{MemoryMiB: 1_000_000, CPU: 1_000_000}, JoinedAt: now,
				Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}},
			}),
			store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id, DataUUID: "d-" + string(id), StartedAt: now}),
			store.Create(keys.Report(id), reports.Report{Node: id, At: now, Parted: true}))
		s.agents[id] = &simAgent{node: id, of: s, wake: make(chan struct{}, 1)}
	}
	if err := commitAll(ctx, s.store, writes); err != nil {
		return err
	}
	s.running.Go(func() { _ = s.view.Run(ctx) })
	if err := s.view.Synced(ctx); err != nil {
		return err
	}
	for _, a := range s.agents {
		s.running.Go(func() { a.run(ctx) })
	}
	return nil
}

// decide runs a scheduler and an enforcer, and waits until they own their shards.
func (s *simulation) decide(ctx context.Context) error {
	running, cancel := context.WithCancel(ctx)
	stop := s.cancel
	s.cancel = func() { cancel(); stop() }
	log := slog.New(slog.DiscardHandler)
	var clients [2]*store.Client
	var views [2]*view.View
	for n := range views {
		clients[n] = s.placeEtcd.store()
		if _, err := clients[n].Join(ctx, time.Now()); err != nil {
			return err
		}
		views[n] = view.New(clients[n], nil)
	}
	sched, err := scheduler.New(scheduler.Config{Store: clients[0], View: views[0], Replica: "a", Log: log})
	if err != nil {
		return err
	}
	enf, err := enforcer.New(enforcer.Config{Store: clients[1], View: views[1], Replica: "a", Log: log})
	if err != nil {
		return err
	}
	for _, v := range views {
		s.running.Go(func() { _ = v.Run(running) })
		if err := v.Synced(ctx); err != nil {
			return err
		}
	}
	s.running.Go(func() { _ = sched.Run(running) })
	s.running.Go(func() { _ = enf.Run(running) })
	for _, service := range []string{"scheduler", "enforcer"} {
		for {
			n, err := store.Count(ctx, s.store, keys.Shards(service))
			if err != nil {
				return err
			}
			if n == fleet.ShardCount {
				break
			}
			if !pause.For(ctx, time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// group returns a group of simulated instances.
func (s *simulation) group(name fleet.GroupName, minimum int) fleet.Group {
	now := time.Now().UTC()
	g := fleet.Group{Name: name, Revision: 1, CreatedAt: now, UpdatedAt: now, Spec: fleet.DefaultSpec()}
	g.Spec.Command, g.Spec.Scaling.Min, g.Spec.Scaling.Max, g.Spec.Resources.MemoryMiB = "exec ./server", minimum, 0, 16
	return g
}

// seed writes groups with online instances.
func (s *simulation) seed(ctx context.Context, groups, share int) error {
	sessions, _, err := store.List(ctx, s.store, keys.NodeSessions())
	if err != nil {
		return err
	}
	sp, n := spawn.New(s.view.Snapshot(), time.Now(), rand.New(rand.NewPCG(1, 2))), 0
	var writes []store.Write
	for g := range groups {
		group := s.group(fleet.GroupName(fmt.Sprintf("group-%04d", g)), share)
		if _, err := s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.Group(group.Name), group)}}); err != nil {
			return err
		}
		var births []spawn.Birth
		for range share {
			births = append(births, sp.Fresh(&group, spawn.Cause{Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum}, "", nil))
		}
		for _, txn := range sp.Txns(births, nil, nil, s.store.MaxOps()) {
			if _, err := s.store.Commit(ctx, txn); err != nil {
				return err
			}
		}
		for _, born := range births {
			session := sessions[n%len(sessions)]
			n++
			writes = append(writes, store.Create(keys.Placement(session.Node, born.Intent.ID), placementOf(born.Intent, session, 20_000+n%40_000)))
		}
	}
	if err := commitAll(ctx, s.store, writes); err != nil {
		return err
	}
	return s.until(ctx, "the seeded instances", func(v *view.Snapshot) bool {
		online := 0
		for _, i := range v.Instances.All() {
			if i.State() == fleet.Online {
				online++
			}
		}
		return online == groups*share
	})
}

// until waits for a condition on the store.
func (s *simulation) until(ctx context.Context, what string, ok func(*view.Snapshot) bool) error {
	ctx, cancel := context.WithTimeout(ctx, boundless)
	defer cancel()
	for {
		snap := s.view.Snapshot()
		if ok(snap) {
			return nil
		}
		if _, err := s.view.WaitRev(ctx, snap.Rev+1); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
}

// hear wakes the agents of the changed instances.
func (s *simulation) hear(b view.Batch) {
	for i := range b.Changes {
		c := &b.Changes[i]
		if c.Instance == nil || c.Kind != view.KindPlacement && c.Kind != view.KindOrder {
			continue
		}
		if a := s.agents[c.Instance.Node()]; a != nil {
			a.note(c.Rev, c.Instance.Intent.ID)
		}
	}
}

// simAgent writes the statuses of the instances on a node, as if each were ready and ended at once.
type simAgent struct {
	node fleet.NodeID
	of   *simulation
	wake chan struct{}

	mu    sync.Mutex
	noted map[fleet.InstanceID]bool
	rev   int64 // of the latest noted change
}

func (a *simAgent) note(rev int64, ids ...fleet.InstanceID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.noted == nil {
		a.noted = map[fleet.InstanceID]bool{}
	}
	for _, id := range ids {
		a.noted[id] = true
	}
	a.rev = max(a.rev, rev)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *simAgent) take() (rev int64, ids []fleet.InstanceID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids = slices.Collect(maps.Keys(a.noted))
	a.noted = nil
	return a.rev, ids
}

func (a *simAgent) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		rev, ids := a.take()
		snap, err := a.of.view.WaitRev(ctx, rev)
		if err != nil {
			return
		}
		var writes []store.Write
		for _, id := range ids {
			if i, ok := snap.Instances.Get(id); ok {
				writes = append(writes, a.report(snap, i)...)
			}
		}
		for part := range slices.Chunk(writes, a.of.store.MaxOps()) {
			if at, err := a.of.store.Commit(ctx, store.Txn{Writes: part}); err != nil {
				a.note(at, ids...) // something changed meanwhile
			}
		}
	}
}

// report returns the write of the next status of an instance, if there is one.
func (a *simAgent) report(snap *view.Snapshot, i *fleet.Instance) []store.Write {
	p, now := i.Placement, time.Now().UTC()
	if p == nil {
		return nil
	}
	session, ok := snap.NodeSessions.Get(a.node)
	if !ok {
		return nil
	}
	next, rev := fleet.Status{
		Instance: i.Intent.ID, Group: i.Intent.Group, Node: a.node, Generation: p.Generation, Epoch: session.CreateRev, State: fleet.Online,
		Reason: fleet.ReasonReady, PID: 4_000_000, StartedAt: now, OnlineAt: now, ChangedAt: now,
	}, int64(0)
	if have := i.Status; have != nil {
		rev = have.ModRev
		ordered := i.Order != nil && i.Order.Generation == have.Generation
		switch {
		case have.Generation < p.Generation:
		case have.State == fleet.Online && ordered:
			next = *have
			next.State, next.Reason, next.PID, next.FinishedAt, next.ChangedAt = fleet.Stopped, fleet.ReasonStopRequested, 0, now, now
			a.of.players.ended(i)
		default:
			return nil
		}
	}
	return []store.Write{store.Replace(keys.Status(i.Intent.ID), next, rev)}
}
