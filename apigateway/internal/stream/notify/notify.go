// Package notify wakes goroutines that wait for changes of the fleet. It does not say what changed;
// they look at the view.
package notify

import (
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/store/view"
)

// Changes broadcasts that records have changed. Create it with New.
type Changes struct {
	kinds []view.Kind

	mu      sync.Mutex
	waiting chan struct{} // nil while nothing waits
}

// New returns Changes for records of some kinds, or of all kinds if there are no arguments.
func New(kinds ...view.Kind) *Changes { return &Changes{kinds: kinds} }

// OnBatch wakes the waiting goroutines. Subscribe it to the view.
func (c *Changes) OnBatch(batch view.Batch) {
	if !c.matches(batch) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting != nil {
		close(c.waiting)
		c.waiting = nil
	}
}

func (c *Changes) matches(batch view.Batch) bool {
	return len(c.kinds) == 0 || slices.ContainsFunc(batch.Changes, func(change view.Change) bool { return slices.Contains(c.kinds, change.Kind) })
}

// Next returns a channel that is closed at the next change. Call it before you look at the view.
func (c *Changes) Next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = make(chan struct{})
	}
	return c.waiting
}
