package rest

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// decidedWithin bounds how long the answer to a start waits for where its instances go.
const decidedWithin = 250 * time.Millisecond

// decided waits until the scheduler has said of each instance where it goes or why it waits,
// but not for long, nor where there is no scheduler, and is the state then.
func (a *API) decided(ctx context.Context, ids ...fleet.InstanceID) *view.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, decidedWithin)
	defer cancel()
	s := a.snapshot()
	for len(s.ServiceSessions("scheduler")) > 0 && slices.ContainsFunc(ids, func(id fleet.InstanceID) bool { return undecided(s, id) }) {
		next, err := a.cfg.View.WaitRev(ctx, s.Rev+1)
		if s = next; err != nil {
			break // what is known is told
		}
	}
	return s
}

// undecided reports whether nobody has said yet where an instance goes, or why it waits.
func undecided(s *view.Snapshot, id fleet.InstanceID) bool {
	i, ok := s.Instances.Get(id)
	return ok && i.NeedsPlacement() && (i.Pending == nil || i.Pending.Generation != i.Intent.Generation)
}

// waiting is an instance that was started and has no node yet.
type waiting struct {
	Instance string           `json:"instance"`
	UID      fleet.InstanceID `json:"uid"`
	Reason   fleet.Reason     `json:"reason"`
	Message  string           `json:"message"`
}

// waitingOf is why an instance waits; ok is false when it does not.
func waitingOf(i *fleet.Instance) (w waiting, ok bool) {
	if !i.NeedsPlacement() {
		return w, false
	}
	reason, message := i.Why()
	return waiting{Instance: i.Intent.Name, UID: i.Intent.ID, Reason: reason, Message: message}, true
}
