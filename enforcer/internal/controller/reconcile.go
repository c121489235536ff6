package controller

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// lostRaces is how often a pass with a lost comparison is repeated at once. After that, the
// queue's back-off applies.
const lostRaces = 5

// lostRaceWait limits the wait for the change that won a comparison.
const lostRaceWait = time.Second

// reconcile plans one group and performs the plan.
func (c *Controller) reconcile(ctx context.Context, name fleet.GroupName) (reconcile.Result, error) {
	pass := c.groupPass
	switch name {
	case sweep:
		pass = c.sweepPass
	case prune:
		pass = c.prunePass
	}
	for attempt := 1; ; attempt++ {
		after, err := pass(ctx, name)
		if !lostRace(err) || attempt == lostRaces {
			return reconcile.Result{After: after}, err
		}
	}
}

func lostRace(err error) bool { return errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists) }

// groupPass plans a group once and performs the plan. after is the time until the next
// pass; 0 when only a change requires one.
func (c *Controller) groupPass(ctx context.Context, name fleet.GroupName) (after time.Duration, err error) {
	own := c.replica.Owned()
	fence, ok := own.Fence(name)
	if !ok {
		return 0, nil
	}
	snap, err := c.view.WaitRev(ctx, own.Epoch())
	if err != nil {
		return 0, err
	}
	now := c.now()
	in := c.input(snap, name, now)
	seen := c.withPolicies(&in)
	actions, wake := plan.Group(in, now)
	if len(actions) > 0 {
		wall := c.wall().Round(0)
		t := &task{name: name, snap: snap, now: wall.UTC(), fence: fence}
		t.asWritten(actions, wall.Sub(now))
		err = c.carryOut(ctx, t, actions)
	}
	if err == nil {
		wake = sooner(wake, c.followUp(name, seen, now))
	}
	if !wake.IsZero() {
		after = wake.Sub(now)
	}
	return after, err
}

// sooner returns the earlier of two times. A zero time is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// carryOut performs actions and waits until the view has the commit, or the change that won
// a comparison.
func (c *Controller) carryOut(ctx context.Context, t *task, actions []plan.Action) error {
	rev, err := c.perform(ctx, t, actions)
	if err == nil {
		_, err = c.view.WaitRev(ctx, rev)
		return err
	}
	// The revision of a failure may belong to a key outside the view, which then never
	// shows it.
	ctx, cancel := context.WithTimeout(ctx, lostRaceWait)
	defer cancel()
	_, _ = c.view.WaitRev(ctx, rev)
	return err
}

// input collects the input for planning a group.
func (c *Controller) input(s *view.Snapshot, name fleet.GroupName, now time.Time) plan.Input {
	in := plan.Input{
		Limits: c.limits, Maintenance: s.Maintenance().On,
		Session: func(n fleet.NodeID) *fleet.NodeSession {
			session, _ := s.NodeSessions.Get(n)
			return c.stamps.session(session, now)
		},
		Plan: func(digest string) *fleet.Plan {
			if stored, ok := s.Plans.Get(digest); ok {
				return &stored.Plan
			}
			return nil
		},
		Republished: func(digest string) bool { return republished(s, digest) },
		Deployments: c.stamps.deployments(s.Deployments(name), now),
		Figures:     func(i *fleet.Instance) reports.InstanceReport { return figuresOf(s, i) },
		EmptySince:  func(i *fleet.Instance) time.Time { return c.empties.of(s, i.Intent.ID, now) },
		Players:     s.Occupied,
		Eviction: func(id fleet.InstanceID) *fleet.Eviction {
			e, _ := s.Evictions.Get(id)
			return c.stamps.eviction(e, now)
		},
		Waits: func(id fleet.InstanceID) bool {
			i, ok := s.Instances.Get(id)
			return ok && i.NeedsPlacement()
		},
		Outranks: func(id fleet.InstanceID, priority int) bool {
			i, ok := s.Instances.Get(id)
			if !ok {
				return false
			}
			g, ok := s.Groups.Get(i.Intent.Group)
			return ok && g.Spec.Preempts && g.Spec.Priority > priority
		},
		Crashes: func(yield func(*reports.Crash) bool) {
			for _, crash := range s.Crashes.All() {
				if !yield(c.stamps.crash(crash, now)) {
					return
				}
			}
		},
		Elsewhere: func(n fleet.NodeID) bool { return elsewhere(s, n) },
		LostSince: func(n fleet.NodeID) time.Time { return c.outages.of(s, n, now) },
		TTL: func(n fleet.NodeID) time.Duration {
			if record, ok := s.Nodes.Get(n); ok && record.SessionTTLSeconds > 0 {
				return time.Duration(record.SessionTTLSeconds) * time.Second
			}
			return store.DefaultTTL
		},
		Joined: func(n fleet.NodeID) int64 {
			if record, ok := s.Nodes.Get(n); ok {
				return record.ModRev
			}
			return 0
		},
		Released: func(n fleet.NodeID) bool {
			record, ok := s.Nodes.Get(n)
			return ok && record.Released
		},
		Deleted: func(n fleet.NodeID) bool {
			d, ok := s.NodesDesired.Get(n)
			return ok && d.Deleted
		},
		Drain: func(n fleet.NodeID) *fleet.NodeDrain {
			d, _ := s.NodesDesired.Get(n)
			return c.stamps.drain(d, now)
		},
		Move:   func(id fleet.InstanceID) (*move.Move, *move.Copy) { return c.stamps.moves(s, id, now) },
		Gone:   func(n fleet.NodeID, dataUUID string) bool { return gone(s, n, dataUUID) },
		Outage: c.outages.count(s, now, c.limits),
	}
	for i := range s.GroupInstances(name) {
		in.Instances = append(in.Instances, c.stamps.instance(i, now))
	}
	if g, ok := s.Groups.Get(name); ok {
		in.Group, in.Ancestors = c.stamps.group(s.Whole(s.Overlaid(g)), now), c.ancestors(s, g, now)
		in.Unmet = len(s.Unmet(g)) > 0
		_, numbered := s.Tenants.Get(name)
		in.Unnumbered = !numbered
	}
	decided, _ := s.Scalings.Get(name)
	in.Scaled = c.stamps.scaling(s, decided, now)
	loop, _ := s.CrashLoops.Get(name)
	in.CrashLoop = c.stamps.loop(loop, now)
	return in
}

// figuresOf returns what an instance reported; zero if it did not.
func figuresOf(s *view.Snapshot, i *fleet.Instance) reports.InstanceReport {
	if report, ok := s.Reports.Get(i.Node()); ok {
		return report.Instances[i.Intent.ID]
	}
	return reports.InstanceReport{}
}

// republished reports whether a template of a plan has a newer version than the plan uses.
func republished(s *view.Snapshot, digest string) bool {
	stored, ok := s.Plans.Get(digest)
	if !ok {
		return false
	}
	var pinned []content.TemplateHead
	if g, ok := s.Groups.Get(stored.Plan.Group); ok {
		pinned = g.Pinned
	}
	return slices.ContainsFunc(stored.Plan.Layers, func(l fleet.PlanLayer) bool {
		if slices.ContainsFunc(pinned, func(h content.TemplateHead) bool { return h.TemplateRef == l.TemplateRef }) {
			return false
		}
		head, ok := s.TemplateHeads.Get(l.TemplateRef.String())
		return ok && head.Digest != l.Digest
	})
}

// ancestors returns the groups that a group inherits from, with their times in this
// process's clock.
func (c *Controller) ancestors(s *view.Snapshot, g *fleet.Group, now time.Time) []*fleet.Group {
	all := compose.Ancestors(g, s.Groups.Get)
	for n, a := range all {
		all[n] = c.stamps.group(a, now)
	}
	return all
}

// sweepPass deletes the records of deleted nodes, and unreferenced plans of owned groups.
func (c *Controller) sweepPass(ctx context.Context, _ fleet.GroupName) (time.Duration, error) {
	own := c.replica.Owned()
	if own.Count() == 0 {
		return 0, nil
	}
	snap, err := c.view.WaitRev(ctx, own.Epoch())
	if err != nil {
		return 0, err
	}
	if err := c.removeNodes(ctx, snap, own); err != nil {
		return 0, err
	}
	used := references(snap)
	now := c.now()
	actions, wake := plan.Plans(c.stamps.plans(ownPlans(snap, own), now), func(digest string) bool { return used[digest] }, c.limits, now)
	byGroup := map[fleet.GroupName][]plan.Action{}
	for _, a := range actions {
		byGroup[a.Group] = append(byGroup[a.Group], a)
	}
	for name, actions := range byGroup {
		fence, ok := own.Fence(name)
		if !ok {
			continue
		}
		if err := c.carryOut(ctx, &task{name: name, snap: snap, now: c.wall().UTC(), fence: fence}, actions); err != nil {
			return 0, err
		}
	}
	if wake.IsZero() {
		return 0, nil
	}
	return max(wake.Sub(now), sweepAfter), nil
}

// ownPlans returns the plans of owned groups.
func ownPlans(s *view.Snapshot, own *store.Ownership) iter.Seq2[string, *fleet.StoredPlan] {
	return func(yield func(string, *fleet.StoredPlan) bool) {
		for digest, stored := range s.Plans.All() {
			if _, ok := own.Fence(stored.Plan.Group); ok && !yield(digest, stored) {
				return
			}
		}
	}
}

// references returns the digests of plans that an intent or a placement names.
func references(s *view.Snapshot) map[string]bool {
	used := map[string]bool{}
	for _, table := range []view.Table[fleet.InstanceID, *fleet.Instance]{s.Instances, s.Orphans} {
		for _, i := range table.All() {
			used[i.Intent.Plan] = true
			if i.Placement != nil {
				used[i.Placement.Plan] = true
			}
		}
	}
	return used
}

// task is the common context of one pass's transactions.
type task struct {
	name  fleet.GroupName
	snap  *view.Snapshot
	now   time.Time
	fence store.Fence
}

// group returns the group's record; nil when it is missing.
func (t *task) group() *fleet.Group {
	g, _ := t.snap.Groups.Get(t.name)
	return g
}
