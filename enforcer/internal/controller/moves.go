package controller

import (
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// moves returns the latest move of an instance and how far its copy is, with their times in this
// process's clock.
func (st *stamps) moves(s *view.Snapshot, id fleet.InstanceID, now time.Time) (*move.Move, *move.Copy) {
	m, c := s.Move(id)
	if !m.Active() {
		return m, c
	}
	local := *m
	local.StepAt = st.local(stampKey{stampMove, string(id)}, m.StepAt, m.ModRev, now)
	if c == nil {
		return &local, nil
	}
	copied := *c
	copied.At = st.local(stampKey{stampCopy, string(id)}, c.At, c.ModRev, now)
	return &local, &copied
}

// gone reports whether a node was deleted, or has joined again with another data directory.
func gone(s *view.Snapshot, node fleet.NodeID, dataUUID string) bool {
	if d, ok := s.NodesDesired.Get(node); ok && d.Deleted {
		return true
	}
	n, ok := s.Nodes.Get(node)
	return !ok || n.DataUUID != dataUUID
}

// setMove writes the next step of a move, together with the intent if it changes.
func (t *task) setMove(a plan.Action) ([]store.Guard, []store.Write) {
	id := a.Instance.Intent.ID
	have, copied := t.snap.Move(id)
	if have == nil {
		return nil, nil
	}
	next := *a.Move
	next.At, next.StepAt = have.At, have.StepAt // as written
	if next.Step != have.Step {
		next.StepAt = t.now
	}
	guards := []store.Guard{t.groupUnchanged()}
	if copied != nil && copied.State == move.Verified && next.Step != have.Step {
		guards = append(guards, store.Unchanged(keys.Copy(id), copied.ModRev))
	}
	if have.Drain != "" { // not after a user has ended it
		guards = append(guards, t.nodeWishesUnchanged(have.Source))
	}
	writes := []store.Write{store.Replace(keys.Move(id), next, have.ModRev)}
	intent := a.Instance.Intent // as written
	if a.Intent == nil {
		return append(guards, store.Unchanged(keys.Intent(id), intent.ModRev)), writes
	}
	rev := intent.ModRev
	intent.MovesTo, intent.RestartPending = a.Intent.MovesTo, a.Intent.RestartPending
	if stop := a.Intent.Stop; stop != nil && stop.At.IsZero() { // it is down for the drain
		set := *stop
		set.At = t.now
		intent.Desired, intent.Stop = a.Intent.Desired, &set
	}
	if a.Intent.Retire == nil {
		intent.Retire = nil
	}
	if have.Step == move.Starting && intent.MovesTo == nil { // not after it was placed there
		guards = append(guards, placementUnchanged(a.Instance))
	}
	return guards, append(writes, store.Replace(keys.Intent(id), intent, rev))
}

// moveUnchanged returns the guard that nothing which a move requires is committed after a user
// cancelled it. It is empty for actions with other reasons.
func (t *task) moveUnchanged(a plan.Action) []store.Guard {
	if a.Reason != fleet.ReasonMoved {
		return nil
	}
	if m, _ := t.snap.Move(a.Instance.Intent.ID); m.Active() {
		return []store.Guard{store.Unchanged(keys.Move(m.Instance), m.ModRev)}
	}
	return nil
}
