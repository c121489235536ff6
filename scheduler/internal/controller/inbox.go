package controller

import (
	"sync"

	"github.com/orreryhq/orrery/libs/store/view"
)

// inboxLimit bounds what a stuck commit can pile up; past it the model is rebuilt.
const inboxLimit = 4096

// inbox hands batches from the view's goroutine to the controller's without blocking it.
type inbox struct {
	wake chan struct{}

	mu      sync.Mutex
	batches []view.Batch
	latest  *view.Snapshot
	// lost is true when batches were dropped: the model must be rebuilt from latest.
	lost bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// hear takes a batch; it never blocks.
func (i *inbox) hear(b view.Batch) {
	i.mu.Lock()
	i.latest = b.After
	if b.Relisted || len(i.batches) >= inboxLimit {
		i.lost, i.batches = true, nil
	}
	if !i.lost {
		i.batches = append(i.batches, b)
	}
	i.mu.Unlock()
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// take returns what has come since the last call. With lost, batches are
// worthless and the model is to be rebuilt from latest.
func (i *inbox) take() (batches []view.Batch, latest *view.Snapshot, lost bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	batches, latest, lost = i.batches, i.latest, i.lost
	i.batches, i.lost = nil, false
	return batches, latest, lost
}
