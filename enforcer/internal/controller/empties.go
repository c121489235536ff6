package controller

import (
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// empties remembers when the last player left an instance, as this process saw it. What happened
// before its first list, or while the watch was interrupted, is unknown: the time then counts from
// that list.
type empties struct {
	mu sync.Mutex
	// rev is the revision up to which all changes have been seen, since the list at began.
	rev   int64
	began time.Time
	left  map[fleet.InstanceID]time.Time
}

func newEmpties() *empties { return &empties{left: map[fleet.InstanceID]time.Time{}} }

// heard processes a batch.
func (e *empties) heard(b *view.Batch, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rev == 0 || b.Relisted || b.Rewound {
		e.began = now
		clear(e.left)
	}
	e.rev = b.After.Rev
	for i := range b.Changes {
		switch ch := &b.Changes[i]; ch.Kind {
		case view.KindReport:
			for id, was := range before(ch) {
				if was.Players > 0 && after(ch)[id].Players == 0 {
					e.left[id] = now
				}
			}
		case view.KindClaims: // claimed slots count as players
			if was, ok := ch.Before.(*allocation.Claims); ok && ch.After == nil {
				e.left[was.Instance] = now
			}
		case view.KindIntent:
			if gone, ok := ch.Before.(*fleet.Intent); ok && ch.After == nil {
				delete(e.left, gone.ID)
			}
		default: // it has no players
		}
	}
}

// of returns since when an instance without players is empty. In a snapshot ahead of the
// processed batches it returns now, because the last one may just have left.
func (e *empties) of(s *view.Snapshot, id fleet.InstanceID, now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.Rev > e.rev {
		return now
	}
	if at, ok := e.left[id]; ok {
		return at
	}
	return e.began
}

// before and after return the figures of a node's instances on one side of a change of its report.
func before(ch *view.Change) map[fleet.InstanceID]reports.InstanceReport { return reported(ch.Before) }

func after(ch *view.Change) map[fleet.InstanceID]reports.InstanceReport { return reported(ch.After) }

func reported(record any) map[fleet.InstanceID]reports.InstanceReport {
	if r, ok := record.(*reports.Report); ok {
		return r.Instances
	}
	return nil
}
