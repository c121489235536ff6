// Package history records every change of every key in etcd during a fault run, in order of
// revision, and rebuilds the records at each revision.
package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Event is one change.
type Event struct {
	store.Change
	// Seen is when the recorder received the change, which is at or after it happened.
	Seen record.Time
}

// Recorder records the changes of the whole store while it runs.
type Recorder struct {
	mu     sync.Mutex
	events []Event
	rev    int64
	resets int
}

var _ store.Handler = (*Recorder)(nil)

// Run records until ctx ends.
func (r *Recorder) Run(ctx context.Context, c *store.Client) { _ = c.Follow(ctx, keys.Root, r) }

// Reset records the initial state. A second call means a gap.
func (r *Recorder) Reset(kvs []store.KeyValue, rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets++
	slices.SortStableFunc(kvs, func(a, b store.KeyValue) int { return int(a.ModRev - b.ModRev) })
	now := record.Now()
	for _, kv := range kvs {
		r.events = append(r.events, Event{Change: store.Change{KeyValue: kv}, Seen: now})
	}
	r.rev = rev
}

// Apply records changes.
func (r *Recorder) Apply(changes []store.Change, rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := record.Now()
	for _, c := range changes {
		r.events = append(r.events, Event{Change: c, Seen: now})
	}
	r.rev = rev
}

// Rev returns the last recorded revision; 0 before the first.
func (r *Recorder) Rev() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rev
}

// Events returns all changes so far. It fails when there is a gap.
func (r *Recorder) Events() ([]Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resets > 1 {
		return nil, errors.New("the history has a gap: it was compacted before it was recorded")
	}
	return slices.Clone(r.events), nil
}

// State is the records at one revision.
type State struct {
	Rev int64
	Records
}

// Walk replays events, one revision at a time. before and after are the states before and
// after each transaction. They are valid only during the call.
func Walk(events []Event, visit func(before, after *State, txn []Event) error) error {
	before, after := &State{Records: newRecords()}, &State{Records: newRecords()}
	for len(events) > 0 {
		rev := events[0].ModRev
		n := slices.IndexFunc(events, func(e Event) bool { return e.ModRev != rev })
		if n < 0 {
			n = len(events)
		}
		txn := events[:n]
		events = events[n:]
		if err := after.apply(rev, txn); err != nil {
			return err
		}
		if err := visit(before, after, txn); err != nil {
			return err
		}
		if err := before.apply(rev, txn); err != nil {
			return err
		}
	}
	return nil
}

// Last returns the state after all events.
func Last(events []Event) (*State, error) {
	s := &State{Records: newRecords()}
	for _, e := range events {
		if err := s.apply(e.ModRev, []Event{e}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *State) apply(rev int64, txn []Event) error {
	s.Rev = rev
	for _, e := range txn {
		if err := s.set(e); err != nil {
			return fmt.Errorf("%s at revision %d: %w", e.Key, e.ModRev, err)
		}
	}
	return nil
}
