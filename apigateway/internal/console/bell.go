package console

import (
	"sync"

	"github.com/orreryhq/orrery/libs/store/view"
)

// Bell rings whenever the fleet changes, for streams that wait for an instance to be
// placed. The zero value is ready for use.
type Bell struct {
	mu      sync.Mutex
	waiting chan struct{} // nil while nobody waits
}

// Hear is to be subscribed to the view.
func (b *Bell) Hear(view.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}

// next is closed at the next change.
func (b *Bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}
