// Package bell wakes those who wait for the fleet to change. What changed they see in the
// view; a bell says only that it is worth looking again.
package bell

import (
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/store/view"
)

// Bell rings when the fleet changes. Make it with New.
type Bell struct {
	kinds []view.Kind

	mu      sync.Mutex
	waiting chan struct{} // nil while nobody waits
}

// New makes a bell that rings for records of some kinds; without kinds, for all.
func New(kinds ...view.Kind) *Bell { return &Bell{kinds: kinds} }

// Hear is to be subscribed to the view.
func (b *Bell) Hear(batch view.Batch) {
	if !b.rings(batch) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}

func (b *Bell) rings(batch view.Batch) bool {
	return len(b.kinds) == 0 || slices.ContainsFunc(batch.Changes, func(c view.Change) bool { return slices.Contains(b.kinds, c.Kind) })
}

// Next is closed at the next change. Take it before you look at what may change.
func (b *Bell) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}
