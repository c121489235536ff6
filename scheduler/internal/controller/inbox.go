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
	// rewound is true when latest is of another past than what was taken before.
	rewound bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// hear takes a batch; it never blocks.
func (i *inbox) hear(b view.Batch) {
	i.mu.Lock()
	i.latest, i.rewound = b.After, i.rewound || b.Rewound
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

// news is what has come. With lost, batches are worthless and the model is to be
// rebuilt from latest; with rewound, so is every revision that was kept.
type news struct {
	batches       []view.Batch
	latest        *view.Snapshot
	lost, rewound bool
}

// take returns what has come since the last call.
func (i *inbox) take() news {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := news{i.batches, i.latest, i.lost, i.rewound}
	i.batches, i.lost, i.rewound = nil, false, false
	return n
}
