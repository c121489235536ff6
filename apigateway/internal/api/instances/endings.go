package instances

import (
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Endings records when this gateway saw instances end, by its own clock. The clock of a node may be
// wrong by hours. It is safe for concurrent use.
type Endings struct {
	now   func() time.Time
	began time.Time

	mu   sync.Mutex
	seen map[fleet.InstanceID]time.Time
}

// NewEndings returns empty Endings. Subscribe its OnBatch to the view.
func NewEndings(now func() time.Time) *Endings {
	return &Endings{now: now, began: now(), seen: map[fleet.InstanceID]time.Time{}}
}

// OnBatch records the instances that end in a batch.
func (e *Endings) OnBatch(b view.Batch) {
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

// Of returns when an instance ended. An end that the gateway did not see is dated before its start.
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
