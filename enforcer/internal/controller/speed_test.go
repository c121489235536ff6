package controller

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	speedGroups = 1000
	// speedShare is the number of instances per group.
	speedShare = 20
	// speedPasses is how often all groups are planned.
	speedPasses = 9
)

// BenchmarkPass measures the time to plan all groups of a large fleet in memory when there is nothing
// to do. It reports the median of several passes; see make bench-groups.
func BenchmarkPass(b *testing.B) {
	w := newWorld(b)
	w.seed()
	v := view.New(w.client, nil, Kinds()...)
	c, err := New(Config{Store: w.client, View: v, Log: slog.New(slog.DiscardHandler), Replica: "a", Limits: plan.DefaultLimits()})
	if err != nil {
		b.Fatal(err)
	}
	w.background(v.Run)
	if err := v.Synced(b.Context()); err != nil {
		b.Fatal(err)
	}
	snap := v.Snapshot()
	var took []time.Duration
	for b.Loop() {
		for range speedPasses {
			began, instances, now := time.Now(), 0, c.now()
			for name := range snap.Groups.All() {
				in := c.input(snap, name, now)
				instances += len(in.Instances)
				if actions, _ := plan.Group(in, now); len(actions) > 0 {
					b.Fatalf("%s: %+v", name, actions)
				}
			}
			took = append(took, time.Since(began))
			if instances != speedGroups*speedShare {
				b.Fatalf("%d instances", instances)
			}
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "reconcile_pass_ms:ms")
}

// seed writes groups and their online instances.
func (w *world) seed() {
	w.t.Helper()
	now := time.Now().UTC()
	session, _ := w.view.Snapshot().NodeSessions.Get(node)
	spawner := spawn.New(w.view.Snapshot(), now, rand.New(rand.NewPCG(1, 2)))
	for n := range speedGroups {
		g := fleet.Group{Name: fleet.GroupName(fmt.Sprintf("group-%03d", n)), Revision: 1, CreatedAt: now, UpdatedAt: now, Spec: fleet.DefaultSpec()}
		g.Spec.Command, g.Spec.Scaling.Min, g.Spec.Scaling.Max = "serve", speedShare, 2*speedShare
		txns := []store.Txn{{Writes: []store.Write{store.Create(keys.Group(g.Name), g)}}}
		var births []spawn.Birth
		for range speedShare {
			births = append(births, spawner.Fresh(&g, spawn.Cause{Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum}, "", nil))
		}
		txns = append(txns, spawner.Txns(births, nil, nil, w.client.MaxOps())...)
		var records store.Txn
		for _, born := range births {
			in := born.Intent
			records.Writes = append(records.Writes,
				store.Create(keys.Placement(node, in.ID), fleet.Placement{Instance: in.ID, Name: in.Name, Group: in.Group, Node: node, Generation: 1, Plan: in.Plan, PlacedAt: now}),
				store.Create(keys.Status(in.ID), fleet.Status{
					Instance: in.ID, Group: in.Group, Node: node, Generation: 1, Epoch: session.CreateRev, State: fleet.Online, Reason: fleet.ReasonReady, ChangedAt: now,
				}))
		}
		for _, txn := range append(txns, records) {
			if _, err := w.client.Commit(w.t.Context(), txn); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}
