package rest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// placingFields are the fields of a group that say which of the nodes it may use
// suit it, and how much of them it and others may have.
type placingFields struct {
	NodePreferences  *[]preference `json:"nodePreferences,omitempty"`
	SpreadMaxSkew    *int          `json:"spreadMaxSkew,omitempty"`
	MaxPerNode       *int          `json:"maxPerNode,omitempty"`
	ExclusiveNode    *bool         `json:"exclusiveNode,omitempty"`
	PlacementProfile *string       `json:"placementProfile,omitempty"`
	PlacementWeights *weights      `json:"placementWeights,omitempty"`
	Labels           *values       `json:"labels,omitempty"`
	Quota            *budget       `json:"quota,omitempty"`
	Reserved         *budget       `json:"reserved,omitempty"`
	Preempts         *bool         `json:"preempts,omitempty"`
	Rebalance        *bool         `json:"rebalance,omitempty"`
}

// preference is a label expression that makes a node more or less welcome.
type preference struct {
	Label  string `json:"label"`
	Weight int    `json:"weight"`
}

// weights are of parts of the score; null stands for the profile's.
type weights map[fleet.ScorePart]*float64

// budget is an amount of what instances hold; what is absent is 0.
type budget struct {
	MemoryMb  *int `json:"memoryMb,omitempty"`
	CPU       *int `json:"cpu,omitempty"` // hundredths of a core
	Instances *int `json:"instances,omitempty"`
}

func (f placingFields) onto(s *fleet.GroupSpec) {
	w := &s.Where
	if f.NodePreferences != nil {
		for _, p := range *f.NodePreferences {
			w.Prefer = append(w.Prefer, fleet.Preference(p))
		}
	}
	set(&w.MaxSkew, f.SpreadMaxSkew)
	set(&w.MaxPerNode, f.MaxPerNode)
	set(&w.Alone, f.ExclusiveNode)
	if f.PlacementProfile != nil {
		w.Profile = profileOf(*f.PlacementProfile)
	}
	w.Weights = f.PlacementWeights.given()
	s.Labels = f.Labels.given()
	s.Quota, s.Reserved = f.Quota.amount(), f.Reserved.amount()
	set(&s.Preempts, f.Preempts)
	set(&s.Rebalance, f.Rebalance)
}

// profileOf is the profile of a name. The default one has no name in the store, so
// that it is the same whether it was asked for or not.
func profileOf(name string) fleet.Profile {
	if p := fleet.Profile(name); p != fleet.ProfileBalanced {
		return p
	}
	return ""
}

// given are the weights that are not null.
func (w *weights) given() map[fleet.ScorePart]float64 {
	if w == nil || len(*w) == 0 {
		return nil
	}
	out := make(map[fleet.ScorePart]float64, len(*w))
	for part, v := range *w {
		if v != nil {
			out[part] = *v
		}
	}
	return out
}

// amount is the budget as the fleet has it; of none, nothing.
func (b *budget) amount() (out fleet.Budget) {
	if b == nil {
		return out
	}
	set(&out.MemoryMiB, b.MemoryMb)
	set(&out.CPU, b.CPU)
	set(&out.Instances, b.Instances)
	return out
}

// placingOf shows what a spec says of its placing: every field.
func placingOf(s fleet.GroupSpec) placingFields {
	preferences := make([]preference, 0, len(s.Where.Prefer))
	for _, p := range s.Where.Prefer {
		preferences = append(preferences, preference(p))
	}
	parts := weights{}
	for part, v := range s.Where.Weights {
		parts[part] = &v
	}
	profile := string(cmp.Or(s.Where.Profile, fleet.ProfileBalanced))
	return placingFields{
		NodePreferences: &preferences, SpreadMaxSkew: &s.Where.MaxSkew, MaxPerNode: &s.Where.MaxPerNode,
		ExclusiveNode: &s.Where.Alone, PlacementProfile: &profile, PlacementWeights: &parts,
		Labels: valuesOf(s.Labels), Quota: budgetOf(s.Quota), Reserved: budgetOf(s.Reserved),
		Preempts: &s.Preempts, Rebalance: &s.Rebalance,
	}
}

func budgetOf(b fleet.Budget) *budget {
	return &budget{MemoryMb: &b.MemoryMiB, CPU: &b.CPU, Instances: &b.Instances}
}

// overdrawn says in which parts more is held than a bound allows, and what comes of
// it; empty when the bound is kept.
func overdrawn(held, bound fleet.Budget) string {
	var over []string
	part := func(what string, have, limit int) {
		if limit > 0 && have > limit {
			over = append(over, fmt.Sprintf("%d of at most %d %s", have, limit, what))
		}
	}
	part("MiB of memory", held.MemoryMiB, bound.MemoryMiB)
	part("hundredths of a core", held.CPU, bound.CPU)
	part("instances", held.Instances, bound.Instances)
	if len(over) == 0 {
		return ""
	}
	return "more is held than the limit allows: " + strings.Join(over, ", ") +
		". Nothing is stopped for it; nothing more is placed until enough has ended or the limit is raised"
}
