package universe

import (
	"github.com/orreryhq/orrery/apigateway/internal/groupfields"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/score"
)

// nativeFields are group fields that are not part of the dialect, with the names of Orrery's own API
// v1. They are optional in a configuration; absent fields keep their values.
type nativeFields struct {
	Platform       *string            `json:"platform"`
	ScalingMode    *fleet.ScalingMode `json:"scalingMode"`
	StopSignal     *string            `json:"stopSignal"`
	MotdMode       *string            `json:"motdMode"`
	UpdateStrategy *string            `json:"updateStrategy"`
	placingFields
	groupfields.Shared
	groupfields.Process
	groupfields.Files
}

// onto sets the fields that the request has.
func (n nativeFields) onto(s *fleet.GroupSpec) {
	if n.Platform != nil {
		s.Software.Platform, s.Software.Assumed = *n.Platform, false
	}
	groupfields.Set(&s.Scaling.Mode, n.ScalingMode)
	groupfields.Set(&s.Stop.Signal, n.StopSignal)
	groupfields.Set(&s.Motd.Mode, n.MotdMode)
	groupfields.Set(&s.UpdateStrategy, n.UpdateStrategy)
	n.placingFields.onto(s)
	n.Shared.Apply(s)
	n.Process.Apply(s)
	n.Files.Apply(s)
}

// placingFields are the native fields for placement and for resource limits of a group.
type placingFields struct {
	NodePreferences  *[]fleet.Preference     `json:"nodePreferences"`
	PlacementProfile *score.Profile          `json:"placementProfile"`
	PlacementWeights *map[score.Part]float64 `json:"placementWeights"`
	Labels           *map[string]string      `json:"labels"`
	Quota            *budget                 `json:"quota"`
	Reserved         *budget                 `json:"reserved"`
}

// budget is a quantity of resources. Missing fields count as 0.
type budget struct {
	MemoryMb  int `json:"memoryMb"`
	CPU       int `json:"cpu"`
	Instances int `json:"instances"`
}

func (f placingFields) onto(s *fleet.GroupSpec) {
	groupfields.Set(&s.Where.Prefer, f.NodePreferences)
	if groupfields.Set(&s.Where.Profile, f.PlacementProfile); s.Where.Profile == score.ProfileBalanced {
		s.Where.Profile = "" // the store leaves out the default
	}
	groupfields.Set(&s.Where.Weights, f.PlacementWeights)
	groupfields.Set(&s.Labels, f.Labels)
	setBudget(&s.Quota, f.Quota)
	setBudget(&s.Reserved, f.Reserved)
}

func setBudget(field *fleet.Budget, given *budget) {
	if given != nil {
		*field = fleet.Budget{MemoryMiB: given.MemoryMb, CPU: given.CPU, Instances: given.Instances}
	}
}
