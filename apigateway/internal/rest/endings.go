package rest

import (
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Endings knows when this gateway saw instances end, by its own clock: the clock of a node may be
// hours ahead or behind. It is safe for concurrent use.
type Endings struct {
	now   func() time.Time
	began time.Time

	mu   sync.Mutex
	seen map[fleet.InstanceID]time.Time
}

// NewEndings makes Endings that have seen nothing. Subscribe their Hear to the view.
func NewEndings(now func() time.Time) *Endings {
	return &Endings{now: now, began: now(), seen: map[fleet.InstanceID]time.Time{}}
}

// Hear notes the instances that end in a batch.
func (e *Endings) Hear(b view.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range b.Changes {
		switch i := c.Instance; {
		case i != nil && i.Terminal():
			if before, ok := b.Before.Instances.Get(i.Intent.ID); ok && !before.Terminal() {
				e.seen[i.Intent.ID] = e.now()
			}
		case c.InstanceBefore != nil:
			delete(e.seen, c.InstanceBefore.Intent.ID)
		}
	}
}

// Of is when an instance ended. What ended unseen did so before the gateway began.
func (e *Endings) Of(i *fleet.Instance) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.seen[i.Intent.ID]; ok {
		return at
	}
	if at := i.FinishedAt(); at.Before(e.began) {
		return at
	}
	return e.began
}
