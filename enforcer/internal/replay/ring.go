package replay

import (
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// every is how often a situation is recorded at most. Situations with a decision are always recorded.
	every = time.Minute
	// maxRecords bounds the records of a group: at one a minute, a week.
	maxRecords = 7 * 24 * 60
	// maxSamples bounds the instances in the records of all groups together. The latest record of each
	// group is kept in any case.
	maxSamples = 1_000_000
)

// Ring keeps the latest records of groups in memory. It is lost with the process, and fills again.
type Ring struct {
	mu      sync.Mutex
	groups  map[fleet.GroupName][]Record
	samples int
}

// NewRing returns an empty ring.
func NewRing() *Ring { return &Ring{groups: map[fleet.GroupName][]Record{}} }

// Add adds a record, unless the last one of the group is recent and neither has a decision.
func (r *Ring) Add(name fleet.GroupName, rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.groups[name]
	if n := len(have); n > 0 && rec.Decision == nil && rec.At.Sub(have[n-1].At) < every {
		return
	}
	have = append(have, rec)
	r.samples += rec.samples()
	drop := max(0, len(have)-maxRecords)
	for n := range drop {
		r.samples -= have[n].samples()
	}
	for r.samples > maxSamples && drop < len(have)-1 {
		r.samples -= have[drop].samples()
		drop++
	}
	clear(have[:drop])
	r.groups[name] = have[drop:]
}

// Of returns the records of a group, the oldest first.
func (r *Ring) Of(name fleet.GroupName) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Record(nil), r.groups[name]...)
}

// Forget drops the records of a group.
func (r *Ring) Forget(name fleet.GroupName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.groups[name] {
		r.samples -= rec.samples()
	}
	delete(r.groups, name)
}
