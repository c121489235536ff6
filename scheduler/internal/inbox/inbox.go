// Package inbox hands batches of the view to the scheduler's loop without blocking the view.
package inbox

import (
	"sync"

	"github.com/orreryhq/orrery/libs/store/view"
)

// limit bounds the batches that wait while a commit is stuck. Beyond it the inbox drops them
// all, and the receiver rebuilds its model from the latest snapshot.
const limit = 4096

// Inbox collects batches. Make it with New; it is safe for concurrent use.
type Inbox struct {
	// Wake receives a value after Add, at most one until it is read.
	Wake chan struct{}

	mu     sync.Mutex
	update Update
}

// New returns an empty inbox.
func New() *Inbox { return &Inbox{Wake: make(chan struct{}, 1)} }

// Update is the result of all batches since the last call of Take.
type Update struct {
	Batches []view.Batch
	// Latest is the snapshot after the last batch, nil before the first one.
	Latest *view.Snapshot
	// Lost means that batches were dropped: rebuild the model from Latest.
	Lost bool
	// Rewound means that Latest belongs to another history of etcd: revisions from before are void.
	Rewound bool
}

// Add takes a batch. It never blocks.
func (i *Inbox) Add(b view.Batch) {
	i.mu.Lock()
	u := &i.update
	u.Latest, u.Rewound = b.After, u.Rewound || b.Rewound
	if b.Relisted || len(u.Batches) >= limit {
		u.Lost, u.Batches = true, nil
	}
	if !u.Lost {
		u.Batches = append(u.Batches, b)
	}
	i.mu.Unlock()
	select {
	case i.Wake <- struct{}{}:
	default:
	}
}

// Take returns the update since the last call. Latest stays the same without a new batch.
func (i *Inbox) Take() Update {
	i.mu.Lock()
	defer i.mu.Unlock()
	u := i.update
	i.update = Update{Latest: u.Latest}
	return u
}
