package controller

import (
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
	"github.com/orreryhq/orrery/scheduler/internal/rebalance"
)

const (
	// movesKey is the quota-allocs record that every transaction of moves touches, so that
	// all schedulers together respect the limit of concurrent moves.
	movesKey = ".moves"
	// rebalanceEvery is the shortest time between two searches for moves. rebalanceRest is
	// the pause after a search, as a multiple of its duration.
	rebalanceEvery, rebalanceRest = time.Second, 20
)

// balancer searches for moves periodically if any group allows them.
type balancer struct {
	// due is the time of the next search.
	due time.Time
	// tried maps instances to the time of their last attempted move.
	tried map[fleet.InstanceID]time.Time
}

// rebalance requests moves when a search is due and finds any.
func (c *Controller) rebalance(now time.Time) {
	if len(c.state.balanced) == 0 || now.Before(c.balancer.due) || !c.mayRequestEvictions(now) {
		return
	}
	began := time.Now()
	limits := rebalance.DefaultLimits()
	for id, at := range c.balancer.tried {
		if now.Sub(at) >= limits.Quiet {
			delete(c.balancer.tried, id)
		}
	}
	instances := c.movable()
	if len(instances) > 0 {
		in := rebalance.Input{Instances: instances, Limits: limits, Fits: c.state.fitsOn}
		in.Nodes, in.UnderWay = c.state.uses()
		if moves := rebalance.Moves(in, now); len(moves) > 0 {
			c.evictor.next = &evictionRequest{txn: c.moves(moves, now), forget: func() {
				for _, m := range moves {
					delete(c.balancer.tried, m.Instance)
				}
			}}
		}
	}
	c.balancer.due = now.Add(max(rebalanceEvery, rebalanceRest*time.Since(began)))
}

// movable returns the instances of owned groups that may move.
func (c *Controller) movable() (out []rebalance.Instance) {
	for name := range c.state.balanced {
		g, ok := c.state.snap.Groups.Get(name)
		_, ours := c.own.Fence(name)
		if !ok || !ours || c.state.snap.MaintenanceOf(g).On || c.state.snap.Overlaid(g).Spec.Scaling.Mode == fleet.ScalingManual || g.Deleting {
			continue
		}
		s := &c.state.snap.Whole(g).Spec
		if _, no := c.state.ledger.Ask(name, s.Resources); no != nil { // during a move the group has one more instance
			continue
		}
		for i := range c.state.snap.GroupInstances(name) {
			if i.HoldsNode() && i.State() == fleet.Online && i.Intent.ReplacedBy == "" && c.state.mayGo(i, g) {
				out = append(out, rebalance.Instance{ID: i.Intent.ID, Node: i.Placement.Node, Resources: i.Placement.Resources, MovedAt: c.movedAt(i)})
			}
		}
	}
	return out
}

// movedAt returns the time of an instance's last move or attempt; zero when it was never moved.
func (c *Controller) movedAt(i *fleet.Instance) time.Time {
	if at, ok := c.balancer.tried[i.Intent.ID]; ok {
		return at
	}
	return c.state.arrived[i.Intent.ID]
}

// uses returns the nodes as they will be after the moves in progress, and the number of
// these moves.
func (s *state) uses() (nodes []rebalance.Node, underWay int) {
	change := map[fleet.NodeID]fleet.Resources{}
	for id, e := range s.snap.Evictions.All() {
		if e.Reason != fleet.ReasonRebalanced {
			continue
		}
		underWay++
		i, ok := s.snap.Instances.Get(id)
		if !ok || !i.HoldsNode() {
			continue
		}
		change[i.Placement.Node] = change[i.Placement.Node].Sub(i.Placement.Resources)
		if second, ok := s.snap.Instances.Get(i.Intent.ReplacedBy); !ok || !second.HoldsNode() {
			change[e.To] = change[e.To].Add(i.Placement.Resources)
		}
	}
	for id, n := range s.ledger.Nodes() {
		nodes = append(nodes, rebalance.Node{
			ID: id, Usable: n.Usable, Capacity: n.Capacity,
			Used: fleet.Resources{MemoryMiB: n.Held.MemoryMiB, CPU: n.Held.CPU}.Add(change[id]),
		})
	}
	return nodes, underWay
}

// fitsOn reports whether another instance like this one would fit on a node.
func (s *state) fitsOn(id fleet.InstanceID, n fleet.NodeID) bool {
	i, ok := s.snap.Instances.Get(id)
	if !ok {
		return false
	}
	stored, ok := s.snap.Plans.Get(i.Placement.Plan)
	return ok && s.model.FitsWithout(&place.Request{ID: id, Group: i.Intent.Group, Plan: &stored.Plan, TemplateMiB: facts.TemplateMiB(s.snap, &stored.Plan)}, n, nil)
}

// moves builds a transaction that requests moves. It requires that the instances are
// unchanged and that no other scheduler has requested moves since.
func (c *Controller) moves(moves []rebalance.Move, now time.Time) store.Txn {
	var rev int64
	if a, ok := c.state.snap.QuotaAllocs.Get(movesKey); ok {
		rev = a.ModRev
	}
	t := store.Txn{Writes: []store.Write{touchBudget(movesKey, rev)}}
	fences := map[string]bool{}
	if c.balancer.tried == nil {
		c.balancer.tried = map[fleet.InstanceID]time.Time{}
	}
	for _, m := range moves {
		i, _ := c.state.snap.Instances.Get(m.Instance)
		f, _ := c.own.Fence(i.Intent.Group)
		if !fences[f.Key()] {
			fences[f.Key()] = true
			t.Fences = append(t.Fences, f)
		}
		c.balancer.tried[m.Instance] = now
		t.Guards = append(append(t.Guards, unchanged(i)...), c.state.snap.FiguresUnchanged(m.From, m.Instance))
		t.Writes = append(t.Writes, store.Create(keys.Eviction(m.Instance), fleet.Eviction{
			Instance: m.Instance, Generation: i.Intent.Generation, Node: m.From, To: m.To, Reason: fleet.ReasonRebalanced, At: now.UTC(),
			Message: fmt.Sprintf("%s moves from %s, which is %.0f %% used, to %s, which is %.0f %% used", i.Intent.Name, m.From, 100*m.FromUse, m.To, 100*m.ToUse),
		}))
	}
	return t
}

// balance records whether a group allows moves.
func (s *state) balance(name fleet.GroupName, g *fleet.Group) {
	if g != nil && g.Spec.Rebalance {
		s.balanced[name] = struct{}{}
	} else {
		delete(s.balanced, name)
	}
}
