package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orreryhq/orrery/enforcer"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	massNodes, massLost = 20, 16

	pauseRuns, pauseLeases = 20, 100
	// pauseTTL is the TTL of the sessions. The leader is paused for longer.
	pauseTTL, pauseFor = 5 * time.Second, 7 * time.Second
)

// lossFleet has real sessions and records of nodes without agents, each with one online
// instance, and a real enforcer. There is no scheduler.
type lossFleet struct {
	store *store.Client
	view  *view.View
	// background tracks what runs until close.
	background sync.WaitGroup
	end        context.CancelFunc
}

func newLossFleet(ctx context.Context, endpoints []string, limits enforcer.Config) (*lossFleet, error) {
	c, err := store.Dial(endpoints, store.Options{})
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	running, end := context.WithCancel(ctx)
	f := &lossFleet{store: c, view: view.New(c, log), end: end}
	if _, err := c.Join(ctx, time.Now()); err != nil {
		f.close()
		return nil, err
	}
	limits.Store, limits.View, limits.Log, limits.Replica = c, f.view, log, "a"
	service, err := enforcer.New(limits)
	if err != nil {
		f.close()
		return nil, err
	}
	f.background.Go(func() { _ = f.view.Run(running) })
	f.background.Go(func() { _ = service.Run(running) })
	if err := f.view.Synced(ctx); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *lossFleet) close() {
	f.end()
	f.background.Wait()
	_ = f.store.Close()
}

// lossNode is a node and the instance on it.
type lossNode struct {
	id       fleet.NodeID
	session  *store.Session
	instance fleet.InstanceID
}

// populate opens the sessions of n nodes, spread over a while, and creates a group of n
// online instances on them.
func (f *lossFleet) populate(ctx context.Context, g fleet.Group, n int, ttl, within time.Duration) ([]lossNode, error) {
	g.Revision, g.CreatedAt = 1, time.Now().UTC()
	g.Spec.Scaling.Min, g.Spec.Scaling.Max, g.Spec.Command = n, n, "exec ./server"
	sp := spawn.New(f.view.Snapshot(), time.Now(), rand.New(rand.NewPCG(rand.Uint64(), 0)))
	var births []spawn.Birth
	for range n {
		births = append(births, sp.Fresh(&g, spawn.Cause{Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum}, "", nil))
	}
	var nodes []lossNode
	for i := range births {
		node := lossNode{id: fleet.NodeID(fmt.Sprintf("%s-%03d", g.Name, i)), instance: births[i].Intent.ID}
		var err error
		node.session, err = store.OpenSession(ctx, f.store, keys.NodeSession(node.id), fleet.NodeSession{Node: node.id, StartedAt: time.Now()}, ttl, false,
			func(granted time.Duration) store.Txn {
				record := fleet.Node{ID: node.id, SessionTTLSeconds: int(granted / time.Second)}
				return store.Txn{Writes: []store.Write{store.Create(keys.Node(node.id), record)}}
			})
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
		if !pause.For(ctx, within/time.Duration(n)) {
			return nil, ctx.Err()
		}
	}
	txns := sp.Txns(births, nil, nil, f.store.MaxOps())
	for i, b := range births {
		txns = append(txns, onlineOn(nodes[i].id, b.Intent, nodes[i].session.Fence().Epoch()))
	}
	// The group comes last, so that its instances exist when the enforcer sees it.
	for _, txn := range append(txns, store.Txn{Writes: []store.Write{store.Create(keys.Group(g.Name), g)}}) {
		if _, err := f.store.Commit(ctx, txn); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// onlineOn returns an online instance's placement and status.
func onlineOn(n fleet.NodeID, in fleet.Intent, epoch int64) store.Txn {
	now := time.Now().UTC()
	return store.Txn{Writes: []store.Write{
		store.Create(keys.Placement(n, in.ID), fleet.Placement{
			Instance: in.ID, Name: in.Name, Group: in.Group, Node: n, Generation: 1, Plan: in.Plan, PlacedAt: now,
		}),
		store.Create(keys.Status(in.ID), fleet.Status{
			Instance: in.ID, Group: in.Group, Node: n, Generation: 1, Epoch: epoch, State: fleet.Online,
			Reason: fleet.ReasonReady, StartedAt: now, OnlineAt: now, ChangedAt: now,
		}),
	}}
}

// until waits for a condition on the view.
func (f *lossFleet) until(ctx context.Context, what string, ok func(*view.Snapshot) bool) error {
	ctx, cancel := context.WithTimeout(ctx, boundless)
	defer cancel()
	for {
		s := f.view.Snapshot()
		if ok(s) {
			return nil
		}
		if _, err := f.view.WaitRev(ctx, s.Rev+1); err != nil {
			return errs.Wrap("waiting for "+what, err)
		}
	}
}

// measureMassLoss ends most sessions of a fleet at once, and checks that nothing is
// replaced.
func measureMassLoss(ctx context.Context, b *bench) error {
	server, err := b.startEtcd("mass-loss")
	if err != nil {
		return err
	}
	defer server.Close()
	f, err := newLossFleet(ctx, []string{server.Clients[0].Addr().String()}, enforcer.Config{})
	if err != nil {
		return err
	}
	defer f.close()
	ttl := store.DefaultTTL
	group := fleet.Group{Name: "mass", Spec: fleet.DefaultSpec()}
	nodes, err := f.populate(ctx, group, massNodes, ttl, ttl/3)
	if err != nil {
		return err
	}
	var ending sync.WaitGroup
	for i, n := range nodes {
		if i < massLost {
			ending.Go(n.session.Abandon)
		} else {
			defer n.session.Close(ctx)
		}
	}
	ending.Wait()
	began := time.Now()
	lost := func(s *view.Snapshot) bool { return s.NodeSessions.Len() == massNodes-massLost }
	if err := f.until(ctx, "the end of the sessions", lost); err != nil {
		return err
	}
	b.report("mass_loss_seen_s", time.Since(began).Seconds(), "s", ttl.Seconds()+2)
	if !pause.For(ctx, ttl) { // three times the wait for further losses
		return ctx.Err()
	}
	s, offline := f.view.Snapshot(), 0
	for i := range s.GroupInstances(group.Name) {
		if i.Lost() {
			offline++
		}
	}
	if offline != massLost {
		return fmt.Errorf("%d instances are on lost nodes, want %d", offline, massLost)
	}
	b.report("mass_loss_replaced", float64(s.Instances.Len()-massNodes), fmt.Sprint("of ", massLost), 0)
	return nil
}
