package groups

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/score"
)

// placementFields are the fields of a group that control placement and quotas.
type placementFields struct {
	NodePreferences  *[]preference    `json:"nodePreferences,omitempty"`
	PlacementProfile *string          `json:"placementProfile,omitempty"`
	PlacementWeights *weights         `json:"placementWeights,omitempty"`
	Labels           *resource.Values `json:"labels,omitempty"`
	Quota            *budget          `json:"quota,omitempty"`
	Reserved         *budget          `json:"reserved,omitempty"`
}

// preference is a label expression that raises or lowers the score of matching nodes.
type preference struct {
	Label  string `json:"label"`
	Weight int    `json:"weight"`
}

// weights are the weights of score parts. null means the weight of the profile.
type weights map[score.Part]*float64

// budget is an amount of resources. Missing fields count as 0.
type budget struct {
	MemoryMb  *int `json:"memoryMb,omitempty"`
	CPU       *int `json:"cpu,omitempty"` // hundredths of a core
	Instances *int `json:"instances,omitempty"`
}

func (f placementFields) onto(s *fleet.GroupSpec) {
	w := &s.Where
	if f.NodePreferences != nil {
		for _, p := range *f.NodePreferences {
			w.Prefer = append(w.Prefer, fleet.Preference(p))
		}
	}
	if f.PlacementProfile != nil {
		w.Profile = profileOf(*f.PlacementProfile)
	}
	w.Weights = f.PlacementWeights.given()
	s.Labels = f.Labels.Given()
	s.Quota, s.Reserved = f.Quota.amount(), f.Reserved.amount()
}

// profileOf returns the profile with a name. The default profile is stored as "", whether the
// client names it or not.
func profileOf(name string) score.Profile {
	if p := score.Profile(name); p != score.ProfileBalanced {
		return p
	}
	return ""
}

// given returns the weights that are not null.
func (w *weights) given() map[score.Part]float64 {
	if w == nil || len(*w) == 0 {
		return nil
	}
	out := make(map[score.Part]float64, len(*w))
	for part, v := range *w {
		if v != nil {
			out[part] = *v
		}
	}
	return out
}

// amount converts the budget. A nil budget is zero.
func (b *budget) amount() (out fleet.Budget) {
	if b == nil {
		return out
	}
	resource.Set(&out.MemoryMiB, b.MemoryMb)
	resource.Set(&out.CPU, b.CPU)
	resource.Set(&out.Instances, b.Instances)
	return out
}

// placementOf returns all placement fields of a spec.
func placementOf(s fleet.GroupSpec) placementFields {
	preferences := make([]preference, 0, len(s.Where.Prefer))
	for _, p := range s.Where.Prefer {
		preferences = append(preferences, preference(p))
	}
	parts := weights{}
	for part, v := range s.Where.Weights {
		parts[part] = &v
	}
	profile := string(cmp.Or(s.Where.Profile, score.ProfileBalanced))
	return placementFields{
		NodePreferences: &preferences, PlacementProfile: &profile, PlacementWeights: &parts,
		Labels: resource.ValuesOf(s.Labels), Quota: budgetOf(s.Quota), Reserved: budgetOf(s.Reserved),
	}
}

func budgetOf(b fleet.Budget) *budget {
	return &budget{MemoryMb: &b.MemoryMiB, CPU: &b.CPU, Instances: &b.Instances}
}

// overdrawn explains which resources exceed a limit and what follows. It returns "" if none does.
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
	return "usage exceeds the limit: " + strings.Join(over, ", ") +
		". Running instances continue; no instance is placed until usage drops or the limit is raised"
}
