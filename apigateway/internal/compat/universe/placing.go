package universe

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// placingFields are the native fields for placement and for resource limits of a group.
type placingFields struct {
	NodePreferences  *[]fleet.Preference          `json:"nodePreferences"`
	SpreadMaxSkew    *int                         `json:"spreadMaxSkew"`
	MaxPerNode       *int                         `json:"maxPerNode"`
	ExclusiveNode    *bool                        `json:"exclusiveNode"`
	PlacementProfile *fleet.Profile               `json:"placementProfile"`
	PlacementWeights *map[fleet.ScorePart]float64 `json:"placementWeights"`
	Labels           *map[string]string           `json:"labels"`
	Quota            *budget                      `json:"quota"`
	Reserved         *budget                      `json:"reserved"`
	Preempts         *bool                        `json:"preempts"`
	Rebalance        *bool                        `json:"rebalance"`
}

// budget is a quantity of resources. Missing fields count as 0.
type budget struct {
	MemoryMb  int `json:"memoryMb"`
	CPU       int `json:"cpu"`
	Instances int `json:"instances"`
}

func (f placingFields) onto(s *fleet.GroupSpec) {
	set(&s.Where.Prefer, f.NodePreferences)
	set(&s.Where.MaxSkew, f.SpreadMaxSkew)
	set(&s.Where.MaxPerNode, f.MaxPerNode)
	set(&s.Where.Alone, f.ExclusiveNode)
	if set(&s.Where.Profile, f.PlacementProfile); s.Where.Profile == fleet.ProfileBalanced {
		s.Where.Profile = "" // the store leaves out the default
	}
	set(&s.Where.Weights, f.PlacementWeights)
	set(&s.Labels, f.Labels)
	setBudget(&s.Quota, f.Quota)
	setBudget(&s.Reserved, f.Reserved)
	set(&s.Preempts, f.Preempts)
	set(&s.Rebalance, f.Rebalance)
}

func setBudget(field *fleet.Budget, given *budget) {
	if given != nil {
		*field = fleet.Budget{MemoryMiB: given.MemoryMb, CPU: given.CPU, Instances: given.Instances}
	}
}
