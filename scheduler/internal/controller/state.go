package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/budget"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/inbox"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// state is the model at the revision of snap, with the assumptions on top of it, and the
// waiting instances.
type state struct {
	snap  *view.Snapshot
	model *place.Model
	// ledger is always charged like the model.
	ledger *budget.Ledger
	// waiters are the instances that need a placement and have no assumption. Each is in
	// ready, parked in a class, in aside, or about to return to ready.
	waiters map[fleet.InstanceID]*pending.Instance
	ready   pending.Queue
	classes map[pending.ClassKey]*pending.Class
	// aside are the waiters of groups that other replicas own.
	aside map[fleet.GroupName]map[*pending.Instance]struct{}
	// assumed are the placements that the model is charged with and that the view does not
	// show yet.
	assumed map[fleet.InstanceID]*entry
	queues  map[fleet.NodeID]*nodeQueue
	// nominated are the resources that are kept for instances, see facts.Nominated. The model is
	// charged with them.
	nominated  map[fleet.InstanceID]place.Hold
	preference preference
	// balanced are the groups that allow moves.
	balanced map[fleet.GroupName]struct{}
	// queued is the number of assumptions that are not sent yet.
	queued int
	// capacityVersion counts the changes that may make something fit. retriedVersion is the
	// count up to which the classes have tried again.
	capacityVersion, retriedVersion uint64
	// maxCPU is the model's load bound, see place.Model.SetMaxCPU.
	maxCPU float64
	// awaitsDisk, awaitsLoad and awaitsSkew record what instances wait for besides
	// resources, see noteCause.
	awaitsDisk, awaitsLoad bool
	awaitsSkew             map[fleet.GroupName]struct{}
	// victimsBound is true while an instance waits because all possible victims are bound.
	// victimFreed is true once players have left such a victim.
	victimsBound, victimFreed bool
	// refresh is when the earliest postponed note is due, or zero.
	refresh time.Time
	// unblock is when the earliest blocked port may be tried again, or zero.
	unblock time.Time
	// blocked maps the ports that foreign programs hold to the end of the time they are
	// avoided.
	blocked map[fleet.NodeID]map[fleet.BlockedPort]time.Time
	// arrived maps instances that came by a move to the time of the move.
	arrived map[fleet.InstanceID]time.Time
	// stops maps stopping instances to the time of the request.
	stops map[fleet.InstanceID]time.Time
}

func newState(maxCPU float64) *state {
	s := &state{
		maxCPU: maxCPU, model: place.NewModel(), ledger: budget.NewLedger(), waiters: map[fleet.InstanceID]*pending.Instance{}, classes: map[pending.ClassKey]*pending.Class{},
		blocked: map[fleet.NodeID]map[fleet.BlockedPort]time.Time{}, arrived: map[fleet.InstanceID]time.Time{}, stops: map[fleet.InstanceID]time.Time{},
		aside: map[fleet.GroupName]map[*pending.Instance]struct{}{}, assumed: map[fleet.InstanceID]*entry{},
		queues: map[fleet.NodeID]*nodeQueue{}, nominated: map[fleet.InstanceID]place.Hold{}, balanced: map[fleet.GroupName]struct{}{}, capacityVersion: 1,
		awaitsSkew: map[fleet.GroupName]struct{}{},
	}
	s.model.SetMaxCPU(maxCPU)
	return s
}

// catchUp applies the batches from the inbox. It reports whether the view was rewound to
// another history of etcd.
func (s *state) catchUp(in *inbox.Inbox, now time.Time) (rewound bool) {
	n := in.Take()
	if n.Lost {
		s.rebuild(n.Latest, now, n.Rewound)
	}
	for _, b := range n.Batches {
		s.snap = b.After
		for i := range b.Changes {
			s.apply(&b.Changes[i], now)
		}
	}
	s.model.Expire(now)
	return n.Rewound
}

// rebuild builds the state from a snapshot. It keeps the assumptions that were sent and may
// have happened after it. With rewound, the snapshot belongs to another history of etcd.
func (s *state) rebuild(snap *view.Snapshot, now time.Time, rewound bool) {
	before := *s
	*s = *newState(before.maxCPU)
	s.blocked, s.arrived, s.stops = before.blocked, before.arrived, before.stops
	s.snap, s.queues, s.capacityVersion, s.preference = snap, before.queues, before.capacityVersion+1, before.preference
	s.model.Prefer(s.preference.to, s.preference.onlyOwn)
	for _, l := range s.queues {
		l.restart(rewound)
		s.forget(l)
	}
	s.setBudgets()
	for id := range snap.Nodes.All() {
		s.setNode(id, now)
	}
	for _, i := range snap.Orphans.All() {
		s.hold(nil, i)
	}
	for id := range s.arrived {
		if _, ok := snap.Instances.Get(id); !ok {
			delete(s.arrived, id)
		}
	}
	for id := range s.stops {
		if _, ok := snap.Instances.Get(id); !ok {
			delete(s.stops, id)
		}
	}
	for _, i := range snap.Instances.All() {
		s.hold(nil, i)
		s.noteStop(i.Intent.ID, i, now, true)
		s.noteFailure(nil, i, now, true)
		s.noteMove(i, now, true)
	}
	for id, e := range before.assumed {
		s.assumeAgain(id, e, rewound)
	}
	for _, i := range snap.Instances.All() {
		if i.NeedsPlacement() {
			s.addWaiter(i)
		}
	}
	for _, e := range snap.Evictions.All() {
		s.nominate(e.For)
	}
	for id := range snap.Moves().All() {
		s.nominate(id)
	}
}

// assumeAgain keeps an assumption across a rebuild if it may still come true. After a
// rewind, the outcome of an answered transaction is unknown again.
func (s *state) assumeAgain(id fleet.InstanceID, e *entry, rewound bool) {
	i, ok := s.snap.Instances.Get(id)
	switch {
	case e.phase == queued, ok && e.is(i.Placement), e.phase == committed && !rewound && e.rev <= s.snap.Rev:
		e.phase = ended
	default:
		if rewound {
			e.phase = sent
		}
		s.charge(e.choice.Hold)
		s.assumed[id] = e
	}
}

func (s *state) apply(c *view.Change, now time.Time) {
	switch c.Kind {
	case view.KindIntent, view.KindPlacement, view.KindStatus:
		s.applyInstance(c)
		s.noteFailure(c.InstanceBefore, c.Instance, now, false)
		if c.Kind == view.KindIntent {
			s.forgetMove(c)
			s.noteMove(c.Instance, now, false)
			s.noteStop(fleet.InstanceID(c.Key[0]), c.Instance, now, false)
		}
	case view.KindReport: // changes which node is best, and with the free disk what fits
		s.reported(c)
		s.setNode(fleet.NodeID(c.Key[0]), now)
	case view.KindNode, view.KindNodeDesired:
		s.nodeChanged(fleet.NodeID(c.Key[0]), now)
	case view.KindSession:
		if c.Key[0] == "node" {
			s.nodeChanged(fleet.NodeID(c.Key[1]), now)
		}
	case view.KindPlan:
		s.capacityVersion++ // an instance may have waited for its plan
	case view.KindTemplateHead: // only the latest version's size is known
		s.diskFreed()
	case view.KindGroup:
		s.updateRank(c)
		s.setGroup(c)
	case view.KindQuota:
		s.setQuota(c)
	case view.KindMove:
		s.nominate(fleet.InstanceID(c.Key[0]))
	case view.KindEviction:
		for _, record := range []any{c.Before, c.After} {
			if e, ok := record.(*fleet.Eviction); ok {
				s.nominate(e.For)
				if e.Reason == fleet.ReasonRebalanced { // its replacement was pinned to a node
					s.capacityVersion++
				}
			}
		}
	}
}

// nodeChanged handles a change of a node that decides what fits there.
func (s *state) nodeChanged(id fleet.NodeID, now time.Time) {
	s.capacityVersion++
	s.setNode(id, now)
	s.cancelQueued(id)
}

// applyInstance updates what an instance holds and whether it waits.
func (s *state) applyInstance(c *view.Change) {
	id := fleet.InstanceID(c.Key[len(c.Key)-1])
	if _, kept := s.nominated[id]; kept {
		defer s.nominate(id)
	}
	s.hold(c.JoinedBefore, c.Joined)
	wanted := c.Instance != nil && c.Instance.NeedsPlacement()
	if e := s.assumed[id]; e != nil {
		if e.phase != queued { // in progress; its comparisons decide
			return
		}
		if wanted && c.Kind != view.KindIntent {
			return
		}
		s.cancel(e)
	}
	switch {
	case !wanted:
		s.removeWaiter(id)
	case c.Kind == view.KindIntent:
		s.removeWaiter(id)
		s.addWaiter(c.Instance)
	default:
		s.addWaiter(c.Instance)
	}
}

// hold replaces the old holds of an instance by its current ones. An assumption that the view now
// shows ends.
func (s *state) hold(before, after *fleet.Instance) {
	old, had := facts.Hold(before)
	now, has := facts.Hold(after)
	if had && has && before.Placement == after.Placement && old.Resources == now.Resources { // most changes only concern the status
		return
	}
	if has {
		if e := s.assumed[after.Placement.Instance]; e != nil && e.phase != queued && e.is(after.Placement) {
			s.end(e)
		} else {
			s.charge(now)
			s.cancelQueued(now.Node)
		}
	}
	if had {
		s.discharge(old)
		s.capacityVersion++
	}
}

func (s *state) setNode(id fleet.NodeID, now time.Time) {
	n, ok := s.snap.Nodes.Get(id)
	if !ok {
		s.model.RemoveNode(id)
		s.ledger.RemoveNode(id)
		delete(s.blocked, id)
		return
	}
	node := facts.Node(s.snap, id, n)
	s.model.SetNode(node, s.blockedPorts(n, now))
	s.ledger.SetNode(id, facts.Budget(&node))
}

// blockedPorts returns the ports that foreign programs probably still hold. Each is avoided
// for fleet.PortBlockedFor after the scheduler first sees it blocked.
func (s *state) blockedPorts(n *fleet.Node, now time.Time) []int {
	if len(n.BlockedPorts) == 0 {
		delete(s.blocked, n.ID)
		return nil
	}
	var ports []int
	known := make(map[fleet.BlockedPort]time.Time, len(n.BlockedPorts))
	for _, b := range n.BlockedPorts {
		until, seen := s.blocked[n.ID][b]
		if !seen {
			until = now.Add(fleet.PortBlockedFor)
		}
		known[b] = until
		if !until.After(now) {
			continue
		}
		ports = append(ports, b.Port)
		if s.unblock.IsZero() || until.Before(s.unblock) {
			s.unblock = until
		}
	}
	s.blocked[n.ID] = known
	return ports
}

// noteMove records when an instance came by a move. For listed, see failures.
func (s *state) noteMove(i *fleet.Instance, now time.Time, listed bool) {
	if i == nil || i.Intent.Reason != fleet.ReasonRebalanced {
		return
	}
	if _, known := s.arrived[i.Intent.ID]; known {
		return
	}
	at := now
	if made := i.Intent.GenerationAt; listed && made.Before(now) {
		at = made
	}
	s.arrived[i.Intent.ID] = at
}

// forgetMove forgets the time of a move when the instance is gone or its current generation
// did not come by a move.
func (s *state) forgetMove(c *view.Change) {
	if c.Instance == nil || c.Instance.Intent.Reason != fleet.ReasonRebalanced {
		delete(s.arrived, fleet.InstanceID(c.Key[len(c.Key)-1]))
	}
}

// noteStop records since when an instance is to stop; i is nil when it is gone. For listed,
// see failures.
func (s *state) noteStop(id fleet.InstanceID, i *fleet.Instance, now time.Time, listed bool) {
	if i == nil || i.Intent.Stop == nil || i.Intent.Desired != fleet.DesiredStopped {
		delete(s.stops, id)
		return
	}
	if _, known := s.stops[id]; known {
		return
	}
	at := now
	if asked := i.Intent.Stop.At; listed && asked.Before(now) {
		at = asked
	}
	s.stops[id] = at
}

// releaseBlocked frees the ports whose blocking time has passed.
func (s *state) releaseBlocked(now time.Time) {
	if s.unblock.IsZero() || s.unblock.After(now) {
		return
	}
	s.unblock = time.Time{}
	s.capacityVersion++
	for id := range s.snap.Nodes.All() {
		s.setNode(id, now)
	}
}
