package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Quota limits what the groups with certain labels may use together, and reserves capacity for
// them. The gateway writes it.
type Quota struct {
	record.Rev
	Name string `json:"name"`
	// Selector are the labels a group must have to be counted. It is never empty.
	Selector map[string]string `json:"selector"`
	Limit    fleet.Budget      `json:"limit,omitzero"`
	Reserved fleet.Budget      `json:"reserved,omitzero"`
	By       string            `json:"by,omitempty"`
	At       time.Time         `json:"at"`
}

// Covers reports whether the quota counts a group with these labels.
func (q Quota) Covers(labels map[string]string) bool {
	for k, v := range q.Selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return len(q.Selector) > 0
}

// Validate returns everything that is wrong with the quota, each as an Invalid error that names
// the field.
func (q Quota) Validate() []error {
	var p validate.Problems
	p.Check(validate.ValidSegment(q.Name), "name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period, not %q", validate.Clip(q.Name))
	p.Check(len(q.Selector) > 0, "selector", "must contain at least one label of the groups to count")
	p.AddAll(fleet.ValidateLabels("selector", q.Selector))
	p.AddAll(q.Limit.Validate("limit"))
	p.AddAll(q.Reserved.Validate("reserved"))
	p.Check(q.Limit != fleet.Budget{} || q.Reserved != fleet.Budget{}, "limit", "set a limit or a reservation: a quota without both has no effect")
	p.Check(len(p.List) > 0 || q.Reserved.Within(q.Limit), "reserved", "must not exceed the limit")
	return p.List
}

// QuotaAlloc is written by every placement under a quota, so two schedulers cannot use the same
// part of it.
type QuotaAlloc struct {
	record.Rev
	Quota string `json:"quota"`
}

// Blank replaces a damaged record with one that names no quota.
func (q *QuotaAlloc) Blank() { *q = QuotaAlloc{} }
