package fleet

import (
	"time"
)

// Instance joins all records of one instance. Only Intent is always there.
type Instance struct {
	Intent    Intent
	Placement *Placement
	Order     *Order
	Status    *Status
	Pending   *Pending
}

// current is the status of the wanted generation, nil when there is none yet.
func (i *Instance) current() *Status {
	if i.Status != nil && i.Status.Generation >= i.Intent.Generation {
		return i.Status
	}
	return nil
}

// placed is the placement of the wanted generation, nil when there is none yet.
func (i *Instance) placed() *Placement {
	if i.Placement != nil && i.Placement.Generation >= i.Intent.Generation {
		return i.Placement
	}
	return nil
}

// lingering is the status of an older generation that has not ended; nil when there
// is none. One on a lost node is not counted: a newer generation is only asked for
// when it cannot run any more.
func (i *Instance) lingering() *Status {
	if s := i.Status; s != nil && s.Generation < i.Intent.Generation && !s.State.Terminal() && s.State != Offline {
		return s
	}
	return nil
}

// Lost reports whether the instance is on a lost node.
func (i *Instance) Lost() bool { return i.State() == Offline }

// Stranded reports whether a newer generation is wanted than the one that was placed
// on a lost node.
func (i *Instance) Stranded() bool {
	return i.Placement != nil && i.Placement.Generation < i.Intent.Generation && i.Status != nil &&
		i.Status.Generation == i.Placement.Generation && i.Status.State == Offline
}

// Moving reports whether the wanted generation may leave the lost node that the one
// before it was placed on: the loss for which it was asked for lasts. After another
// loss it has to be asked for again, when that one has lasted long enough.
func (i *Instance) Moving() bool { return i.Stranded() && i.Status.ModRev == i.Intent.Leaves }

// MayLeave is Moving for a lost node whose record is at a revision. Once the node has
// joined again, what may run there is not what the move was asked for.
func (i *Instance) MayLeave(node int64) bool {
	return i.Moving() && (i.Intent.LeavesNode == 0 || i.Intent.LeavesNode == node)
}

// State derives the state from the records.
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

// Why is the reason of the state and a sentence a person can act on.
func (i *Instance) Why() (Reason, string) {
	if s := i.current(); s != nil {
		if s.Reason == ReasonRestart && !i.Intent.RestartPending && i.Intent.Stop != nil {
			// Its node was asked to stop it once, for a restart that somebody has called off since.
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

// Ran is when the latest run began and when it ended: from is zero before it began, to while
// it goes on.
func (i *Instance) Ran() (from, to time.Time) {
	st := i.Status
	if st == nil || st.Generation < i.Intent.Generation && st.State.Terminal() {
		return from, to
	}
	if i.Terminal() {
		to = i.FinishedAt()
	}
	return st.StartedAt, to
}

// UptimeMillis is how long the latest run has lasted so far, or did last; nil before it began, and while its
// node is lost.
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

// Terminal reports whether the wanted generation has ended.
func (i *Instance) Terminal() bool { return i.State().Terminal() }

// Living reports whether the instance is wanted and counts towards its group's
// number. One that is being restarted counts throughout; an OFFLINE one only when
// its group keeps those on lost nodes, see GroupSpec.KeepsLost.
func (i *Instance) Living(keepsLost bool) bool {
	if i.Intent.RestartPending {
		return true
	}
	if i.Intent.Desired != DesiredRunning {
		return false
	}
	switch s := i.State(); s {
	case Offline:
		return keepsLost
	default:
		return !s.Terminal()
	}
}

// HoldsNode reports whether the instance's placement still occupies its node's
// room and ports: from the placement until its agent reported the end of that generation.
func (i *Instance) HoldsNode() bool {
	if i.Placement == nil {
		return false
	}
	return i.Status == nil || i.Status.Generation < i.Placement.Generation || !i.Status.State.Terminal()
}

// HeldGeneration is the generation that runs, or ran, where the instance is placed: its
// placement's, or a later one that its node reports. That happens when etcd was restored
// from a backup: then the status is the younger record. It is 0 without a placement.
func (i *Instance) HeldGeneration() int64 {
	switch {
	case i.Placement == nil:
		return 0
	case i.Status != nil && i.Status.Node == i.Placement.Node:
		return max(i.Placement.Generation, i.Status.Generation)
	}
	return i.Placement.Generation
}

// Stray reports whether a node runs a generation that no placement gives it: only the
// status tells of it. That happens when etcd was restored from a backup that is older than
// the placement.
func (i *Instance) Stray() bool {
	s := i.Status
	if s == nil || s.State.Terminal() || s.State == Offline {
		return false
	}
	return i.Placement == nil || i.Placement.Node != s.Node && i.Placement.Generation < s.Generation
}

// Held is the node that runs the instance, or ran it last, and the generation there: those
// of its placement, or of the status of a stray one. They are empty when nothing is known.
func (i *Instance) Held() (NodeID, int64) {
	if i.Stray() {
		return i.Status.Node, i.Status.Generation
	}
	return i.Node(), i.HeldGeneration()
}

// LastGeneration is the highest generation that any record of the instance names. The next
// one is above it, since a node ignores what it has seen already.
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

// NeedsPlacement reports whether the scheduler shall place the wanted generation now.
func (i *Instance) NeedsPlacement() bool {
	return i.Intent.Desired == DesiredRunning && i.placed() == nil && i.current() == nil && (!i.HoldsNode() || i.Moving())
}

// FinishedAt is when the wanted generation ended; zero while it has not. A host
// whose clock is behind cannot date it before the generation was asked for, and one
// whose clock was set back cannot date it after the status that tells of it.
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

// Shown is the placement that people are shown: the latest, but nil while the wanted
// generation waits for one. Where the one before it was tells nothing any more.
func (i *Instance) Shown() *Placement {
	if i.State() == Unplaced {
		return nil
	}
	return i.Placement
}

// Node is the node of the latest placement, "" when there is none.
func (i *Instance) Node() NodeID {
	if i.Placement != nil {
		return i.Placement.Node
	}
	return ""
}

// Port is the main port of the latest placement, 0 when none is decided.
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
