package instances

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// placementTimeout bounds how long the answer to a start waits for the placement.
const placementTimeout = 250 * time.Millisecond

// AwaitPlacement waits until the scheduler has placed each instance or recorded why it waits. It
// returns the snapshot of then. It does not wait long, and not at all without a scheduler.
func AwaitPlacement(ctx context.Context, v *view.View, ids ...fleet.InstanceID) *view.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, placementTimeout)
	defer cancel()
	s := v.Snapshot()
	for len(s.ServiceSessions("scheduler")) > 0 && slices.ContainsFunc(ids, func(id fleet.InstanceID) bool { return undecided(s, id) }) {
		next, err := v.WaitRev(ctx, s.Rev+1)
		if s = next; err != nil {
			break // respond with what is known
		}
	}
	return s
}

// undecided reports whether the scheduler has yet to place an instance or to record why it waits.
func undecided(s *view.Snapshot, id fleet.InstanceID) bool {
	i, ok := s.Instances.Get(id)
	return ok && i.NeedsPlacement() && (i.Pending == nil || i.Pending.Generation != i.Intent.Generation)
}

// Waiting is a started instance that has no node yet.
type Waiting struct {
	Instance string           `json:"instance"`
	UID      fleet.InstanceID `json:"uid"`
	Reason   fleet.Reason     `json:"reason"`
	Message  string           `json:"message"`
}

// WaitingOf returns why an instance waits. ok is false if it does not.
func WaitingOf(i *fleet.Instance) (w Waiting, ok bool) {
	if !i.NeedsPlacement() {
		return w, false
	}
	reason, message := i.Why()
	return Waiting{Instance: i.Intent.Name, UID: i.Intent.ID, Reason: reason, Message: message}, true
}
