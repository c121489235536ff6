package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Budget is a quantity of resources and instances. 0 means unlimited in a limit, and nothing in a
// reservation.
type Budget struct {
	MemoryMiB int `json:"memoryMiB,omitempty"`
	// CPU is in hundredths of a core.
	CPU       int `json:"cpu,omitempty"`
	Instances int `json:"instances,omitempty"`
}

// BudgetOf returns the budget one instance uses.
func BudgetOf(r Resources) Budget { return Budget{r.MemoryMiB, r.CPU, 1} }

// Add returns b plus o.
func (b Budget) Add(o Budget) Budget {
	return Budget{b.MemoryMiB + o.MemoryMiB, b.CPU + o.CPU, b.Instances + o.Instances}
}

// Sub returns b minus o. Parts may be negative.
func (b Budget) Sub(o Budget) Budget {
	return Budget{b.MemoryMiB - o.MemoryMiB, b.CPU - o.CPU, b.Instances - o.Instances}
}

// Within reports whether b stays within a limit.
func (b Budget) Within(bound Budget) bool {
	return (bound.MemoryMiB == 0 || b.MemoryMiB <= bound.MemoryMiB) &&
		(bound.CPU == 0 || b.CPU <= bound.CPU) &&
		(bound.Instances == 0 || b.Instances <= bound.Instances)
}

// Validate returns everything that is wrong with a budget, each as an Invalid error below the field.
func (b Budget) Validate(field string) []error {
	var p validate.Problems
	check := func(part string, v, limit int) {
		p.Check(v >= 0 && v <= limit, field+"."+part, "must be between 0 and %d, is %d", limit, v)
	}
	check("memoryMb", b.MemoryMiB, MaxMemoryMiB)
	check("cpu", b.CPU, MaxCPU)
	check("instances", b.Instances, validate.MaxInstances)
	return p.List
}

// maxLabelBytes bounds the key and the value of a label.
const maxLabelBytes = 256

// ValidateLabels returns everything that is wrong with labels, each as an Invalid error for the field.
func ValidateLabels(field string, labels map[string]string) []error {
	var p validate.Problems
	p.Check(len(labels) <= validate.MaxEntries, field, "must have at most %d entries", validate.MaxEntries)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		p.Check(k != "" && label.LabelWord(k), field, "%q is not a label key: use letters, digits and _ . / : @ -", validate.Clip(k))
		p.Check(label.LabelWord(labels[k]), field, "%q is not a label value: use letters, digits and _ . / : @ -", validate.Clip(labels[k]))
		p.Check(len(k) <= maxLabelBytes && len(labels[k]) <= maxLabelBytes, field, "key and value of %q must have at most %d bytes each", validate.Clip(k), maxLabelBytes)
	}
	return p.List
}

// ReservedAlloc is the name of the QuotaAlloc that every placement writes if it must respect
// reservations of others. All reservations share it. No quota name starts with a period.
const ReservedAlloc = ".reserved"

// Eviction asks the enforcer to stop a placed instance to free its resources. The scheduler writes
// it. The enforcer stops the instance, or removes the record if that is no longer possible. It
// applies to one generation only.
type Eviction struct {
	record.Rev
	Instance   InstanceID `json:"instance"`
	Generation int64      `json:"generation"`
	Node       NodeID     `json:"node"`
	// Reason is ReasonPreempted or ReasonRebalanced.
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// For is the instance that gets the resources. It is empty for a rebalancing move.
	For InstanceID `json:"for,omitempty"`
	// To is the target node of a rebalancing move.
	To NodeID    `json:"to,omitempty"`
	At time.Time `json:"at"`
}
