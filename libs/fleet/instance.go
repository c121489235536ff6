package fleet

import (
	"time"
)

// Instance joins all records of one instance. Every record except Intent may be missing.
type Instance struct {
	Intent    Intent
	Placement *Placement
	Order     *Order
	Status    *Status
	Pending   *Pending
}

// current returns the status of the wanted generation, or nil.
func (i *Instance) current() *Status {
	if i.Status != nil && i.Status.Generation >= i.Intent.Generation {
		return i.Status
	}
	return nil
}

// placed returns the placement of the wanted generation, or nil.
func (i *Instance) placed() *Placement {
	if i.Placement != nil && i.Placement.Generation >= i.Intent.Generation {
		return i.Placement
	}
	return nil
}

// lingering returns the status of an older generation that has not ended, or nil. It ignores an
// OFFLINE one, because a newer generation is requested only when the old one can no longer run, and a
// SLEEPING one, which has no process.
func (i *Instance) lingering() *Status {
	if s := i.Status; s != nil && s.Generation < i.Intent.Generation && !s.State.Terminal() && s.State != Offline && s.State != Sleeping {
		return s
	}
	return nil
}

// Lost reports whether the instance is on a lost node.
func (i *Instance) Lost() bool { return i.State() == Offline }

// Stranded reports whether the instance was placed on a node that is now lost, and a newer
// generation is wanted.
func (i *Instance) Stranded() bool {
	return i.Placement != nil && i.Placement.Generation < i.Intent.Generation && i.Status != nil &&
		i.Status.Generation == i.Placement.Generation && i.Status.State == Offline
}

// Moving reports whether the wanted generation may be placed although its predecessor is on a lost
// node. This holds only during the node loss for which the move was requested. After another loss
// the enforcer must request the move again.
func (i *Instance) Moving() bool { return i.Stranded() && i.Status.ModRev == i.Intent.Leaves }

// MayLeave is Moving, given the current revision of the lost node's record. It is false if the
// node has joined again since the move was requested.
func (i *Instance) MayLeave(node int64) bool {
	return i.Moving() && (i.Intent.LeavesNode == 0 || i.Intent.LeavesNode == node)
}

// Moved returns the copy of the instance's data from which it starts next, or nil if the data is on
// the node of its latest placement.
func (i *Instance) Moved() *DataCopy {
	if to := i.Intent.MovesTo; to != nil && i.Placement != nil && i.Placement.Generation <= to.Generation {
		return to
	}
	return nil
}

// DataNode returns the node with the data of a static instance, "" if it was never placed.
func (i *Instance) DataNode() NodeID {
	if to := i.Moved(); to != nil {
		return to.Node
	}
	return i.Node()
}

// State derives the instance's state from its records.
func (i *Instance) State() State {
	if s := i.current(); s != nil {
		return s.State
	}
	if s := i.lingering(); s != nil {
		return s.State
	}
	switch {
	case i.placed() != nil:
		return Preparing
	case i.Intent.Desired == DesiredStopped:
		return Stopped
	}
	return Unplaced
}

// Why returns the reason of the state and a sentence that explains it.
func (i *Instance) Why() (Reason, string) {
	if s := i.current(); s != nil {
		if s.Reason == ReasonRestart && !i.Intent.RestartPending && i.Intent.Stop != nil {
			// The node was asked to stop it for a restart that was cancelled since.
			return i.Intent.Stop.Reason, sentence(i.Intent.Stop.Reason, i.Intent.Stop.Message)
		}
		return s.Reason, sentence(s.Reason, s.Message)
	}
	if s := i.lingering(); s != nil {
		return s.Reason, sentence(s.Reason, s.Message)
	}
	switch {
	case i.placed() != nil:
		return ReasonPlaced, ReasonPlaced.Text()
	case i.Intent.Desired == DesiredStopped && i.Intent.Stop != nil:
		return i.Intent.Stop.Reason, sentence(i.Intent.Stop.Reason, i.Intent.Stop.Message)
	case i.Pending != nil && i.Pending.Generation == i.Intent.Generation:
		return i.Pending.Reason, sentence(i.Pending.Reason, i.Pending.Message)
	}
	return ReasonUnscheduled, ReasonUnscheduled.Text()
}

func sentence(r Reason, message string) string {
	if message != "" {
		return message
	}
	return r.Text()
}

// Ran returns when the latest run began and ended. from is zero before the run began, to is zero
// until it ends.
func (i *Instance) Ran() (from, to time.Time) {
	st := i.Status
	if st == nil || st.Generation < i.Intent.Generation && st.State.Terminal() {
		return from, to
	}
	switch {
	case i.Terminal():
		to = i.FinishedAt()
	case st.State == Sleeping:
		to = st.FinishedAt
	}
	return st.StartedAt, to
}

// UptimeMillis returns how long the latest run lasted, or has lasted so far. It is nil before the
// run began and while the node is lost.
func (i *Instance) UptimeMillis(now time.Time) *int64 {
	from, to := i.Ran()
	if from.IsZero() || i.State() == Offline {
		return nil
	}
	if to.IsZero() {
		to = now
	}
	up := max(0, to.Sub(from).Milliseconds())
	return &up
}

// Retiring reports whether the instance empties before it is stopped.
func (i *Instance) Retiring() bool {
	return i.Intent.Retire != nil && i.Intent.Desired == DesiredRunning && !i.Intent.RestartPending
}

// TakesPlayers reports whether players may be sent to the instance.
func (i *Instance) TakesPlayers() bool {
	return i.State() == Online && !i.Retiring() && i.Intent.Sleep == nil && !i.Intent.Standby && !i.Intent.Warm
}

// Asleep reports whether the instance sleeps on its node. It still does while it waits for resources
// to wake. A sleeping instance holds its ports and its directory, but no memory and no CPU.
func (i *Instance) Asleep() bool {
	return i.Placement != nil && i.Status != nil && i.Status.State == Sleeping && i.Status.Generation >= i.Placement.Generation
}

// Occupies returns the resources that the instance holds on its node.
func (i *Instance) Occupies() Resources {
	switch {
	case !i.HoldsNode():
		return Resources{}
	case i.Asleep():
		return Resources{DiskMiB: i.Placement.Resources.DiskMiB}
	}
	return i.Placement.Resources
}

// Waking reports whether the wanted generation wakes the instance, and is not placed yet.
func (i *Instance) Waking() bool { return i.Asleep() && i.Placement.Generation < i.Intent.Generation }

// Terminal reports whether the wanted generation has ended.
func (i *Instance) Terminal() bool { return i.State().Terminal() }

// Living reports whether the instance is wanted and counts towards its group's number. It also
// counts during a restart. An OFFLINE instance counts only with keepsLost (GroupSpec.KeepsLost). A
// warm instance does not count.
func (i *Instance) Living(keepsLost bool) bool {
	if i.Intent.RestartPending {
		return true
	}
	if i.Intent.Desired != DesiredRunning || i.Intent.Warm {
		return false
	}
	switch s := i.State(); s {
	case Offline:
		return keepsLost
	default:
		return !s.Terminal()
	}
}

// HoldsNode reports whether the instance occupies resources and ports of its node, or only ports if
// it is Asleep. It does from its placement until the agent reports the end of that generation.
func (i *Instance) HoldsNode() bool {
	if i.Placement == nil {
		return false
	}
	return i.Status == nil || i.Status.Generation < i.Placement.Generation || !i.Status.State.Terminal()
}

// HeldGeneration returns the generation that runs, or last ran, on the node of the placement. This
// is the placement's generation, or a later one in the node's status: after etcd was restored from
// a backup, the status may be newer than the placement. It is 0 without a placement.
func (i *Instance) HeldGeneration() int64 {
	switch {
	case i.Placement == nil:
		return 0
	case i.Status != nil && i.Status.Node == i.Placement.Node:
		return max(i.Placement.Generation, i.Status.Generation)
	}
	return i.Placement.Generation
}

// Stray reports whether a node runs a generation that has no placement and is known only from the
// status. This happens after etcd was restored from a backup older than the placement.
func (i *Instance) Stray() bool {
	s := i.Status
	if s == nil || s.State.Terminal() || s.State == Offline {
		return false
	}
	return i.Placement == nil || i.Placement.Node != s.Node && i.Placement.Generation < s.Generation
}

// Held returns the node that runs, or last ran, the instance and the generation there, taken from
// the placement, or from the status of a stray instance. Both are zero if unknown.
func (i *Instance) Held() (NodeID, int64) {
	if i.Stray() {
		return i.Status.Node, i.Status.Generation
	}
	return i.Node(), i.HeldGeneration()
}

// LastGeneration returns the highest generation in any record of the instance. The next generation
// must be higher, because nodes ignore generations they have already seen.
func (i *Instance) LastGeneration() int64 {
	last := i.Intent.Generation
	if i.Placement != nil {
		last = max(last, i.Placement.Generation)
	}
	if i.Status != nil {
		last = max(last, i.Status.Generation)
	}
	return last
}

// NeedsPlacement reports whether the scheduler must place the wanted generation now.
func (i *Instance) NeedsPlacement() bool {
	return i.Intent.Desired == DesiredRunning && i.placed() == nil && i.current() == nil && (!i.HoldsNode() || i.Moving() || i.Waking())
}

// FinishedAt returns when the wanted generation ended, zero if it has not. The node's clock may be
// wrong, so the time is limited to the span from the request for the generation to the change of
// the status.
func (i *Instance) FinishedAt() time.Time {
	if !i.Terminal() {
		return time.Time{}
	}
	if s := i.current(); s != nil {
		at := s.ChangedAt
		if !s.FinishedAt.IsZero() {
			at = earliest(s.FinishedAt, s.ChangedAt)
		}
		return latest(i.Intent.GenerationAt, at)
	}
	if i.Intent.Stop != nil {
		return i.Intent.Stop.At
	}
	return i.Intent.GenerationAt
}

// Shown returns the placement to display: the latest one, or nil while the wanted generation waits
// for a placement.
func (i *Instance) Shown() *Placement {
	if i.State() == Unplaced {
		return nil
	}
	return i.Placement
}

// Node returns the node of the latest placement, or "".
func (i *Instance) Node() NodeID {
	if i.Placement != nil {
		return i.Placement.Node
	}
	return ""
}

// Port returns the main port of the latest placement, or 0.
func (i *Instance) Port() int {
	if i.Placement != nil {
		return i.Placement.Port
	}
	return 0
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
