package fleet

import (
	"maps"
	"slices"
	"time"
)

// Budget is an amount of what instances hold. In a bound 0 means none, in a
// reservation nothing.
type Budget struct {
	MemoryMiB int `json:"memoryMiB,omitempty"`
	// CPU is in hundredths of a core.
	CPU       int `json:"cpu,omitempty"`
	Instances int `json:"instances,omitempty"`
}

// BudgetOf is what one instance of some resources takes.
func BudgetOf(r Resources) Budget { return Budget{r.MemoryMiB, r.CPU, 1} }

// Add is the sum of two amounts.
func (b Budget) Add(o Budget) Budget {
	return Budget{b.MemoryMiB + o.MemoryMiB, b.CPU + o.CPU, b.Instances + o.Instances}
}

// Sub is b less o; parts may become negative.
func (b Budget) Sub(o Budget) Budget {
	return Budget{b.MemoryMiB - o.MemoryMiB, b.CPU - o.CPU, b.Instances - o.Instances}
}

// Within reports whether an amount keeps a bound.
func (b Budget) Within(bound Budget) bool {
	return (bound.MemoryMiB == 0 || b.MemoryMiB <= bound.MemoryMiB) &&
		(bound.CPU == 0 || b.CPU <= bound.CPU) &&
		(bound.Instances == 0 || b.Instances <= bound.Instances)
}

func (b Budget) validate(field string) []error {
	var p problems
	check := func(part string, v, limit int) {
		p.check(v >= 0 && v <= limit, field+"."+part, "must be between 0 and %d, is %d", limit, v)
	}
	check("memoryMb", b.MemoryMiB, maxMemoryMiB)
	check("cpu", b.CPU, maxCPU)
	check("instances", b.Instances, maxInstances)
	return p.list
}

// Quota bounds what the groups with certain labels may hold together, and what
// others leave free for them. The gateway writes it.
type Quota struct {
	Rev
	Name string `json:"name"`
	// Selector are the labels a group must carry to be counted; never empty.
	Selector map[string]string `json:"selector"`
	Limit    Budget            `json:"limit,omitzero"`
	Reserved Budget            `json:"reserved,omitzero"`
	By       string            `json:"by,omitempty"`
	At       time.Time         `json:"at"`
}

// Covers reports whether a group with these labels is counted.
func (q Quota) Covers(labels map[string]string) bool {
	for k, v := range q.Selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return len(q.Selector) > 0
}

// Validate lists everything wrong with a quota, each an Invalid error that names the field.
func (q Quota) Validate() []error {
	var p problems
	p.check(validSegment(q.Name), "name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period; %q is not", clip(q.Name))
	p.check(len(q.Selector) > 0, "selector", "must name at least one label of the groups that are counted")
	p.addAll(validateLabels("selector", q.Selector))
	p.addAll(q.Limit.validate("limit"))
	p.addAll(q.Reserved.validate("reserved"))
	p.check(q.Limit != Budget{} || q.Reserved != Budget{}, "limit", "a quota without limit and reservation bounds nothing")
	p.check(len(p.list) > 0 || q.Reserved.Within(q.Limit), "reserved", "must not be more than the limit")
	return p.list
}

// maxLabelBytes bounds a label's key, and its value.
const maxLabelBytes = 256

func validateLabels(field string, labels map[string]string) []error {
	var p problems
	p.check(len(labels) <= maxEntries, field, "must have at most %d entries", maxEntries)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		p.check(k != "" && labelWord(k), field, "%q is not a label's key: use letters, digits and _ . / : @ -", clip(k))
		p.check(labelWord(labels[k]), field, "%q is not a label's value: use letters, digits and _ . / : @ -", clip(labels[k]))
		p.check(len(k) <= maxLabelBytes && len(labels[k]) <= maxLabelBytes, field, "key and value of %q must be at most %d bytes each", clip(k), maxLabelBytes)
	}
	return p.list
}

// QuotaAlloc is touched by every placement under a quota, so that two schedulers
// can never spend the same part of it.
type QuotaAlloc struct {
	Rev
	Quota string `json:"quota"`
}

// Blank is how a damaged record is read: as one that names no quota.
func (q *QuotaAlloc) Blank() { *q = QuotaAlloc{} }

// ReservedAlloc names the QuotaAlloc that every placement touches which has to leave
// room reserved for others: one for all reservations, however many there are. No
// quota's name begins with a period.
const ReservedAlloc = ".reserved"

// Eviction asks that a placed instance makes room where it is. Written by the
// scheduler; the enforcer stops the instance, or removes the record when that is
// not possible any more. One generation is meant, no later one.
type Eviction struct {
	Rev
	Instance   InstanceID `json:"instance"`
	Generation int64      `json:"generation"`
	Node       NodeID     `json:"node"`
	// Reason is ReasonPreempted or ReasonRebalanced.
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// For is the instance that gets the room; empty when it is moved to even out the nodes.
	For InstanceID `json:"for,omitempty"`
	// To is the node it is moved to; empty unless it is.
	To NodeID    `json:"to,omitempty"`
	At time.Time `json:"at"`
}
