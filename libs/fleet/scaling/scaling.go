// Package scaling holds what a group's automatic scaling is made of: the enforcer's decisions as
// records, and the rules that say whether the load of a group needs more instances.
package scaling

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/naming"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Decision is the latest change of a group's number of instances because of its load. The enforcer
// writes it and removes it when the group no longer scales automatically.
type Decision struct {
	record.Rev
	Group fleet.GroupName `json:"group"`
	// Target is how many instances the group needs above its minimum's number. 0 means that the
	// minimum is enough.
	Target int `json:"target"`
	// From and To are the numbers of instances before and after.
	From int `json:"from"`
	To   int `json:"to"`
	// At is when it was decided. The cooldown counts from it.
	At      time.Time    `json:"at"`
	Reason  fleet.Reason `json:"reason"`
	Message string       `json:"message"`
	// Policy is the policy that decided; "" for the load.
	Policy string `json:"policy,omitempty"`
	// ScaledAt is the group's last explicit scale at that time. After another one, Target no longer
	// applies.
	ScaledAt time.Time `json:"scaledAt,omitzero"`
}

// Up reports whether the decision added instances.
func (d *Decision) Up() bool { return d.To > d.From }

// TargetFor returns Target; 0 for nil, and after a later explicit scale of the group.
func (d *Decision) TargetFor(g *fleet.Group) int {
	if d == nil || !d.ScaledAt.Equal(g.ScaledAt) {
		return 0
	}
	return d.Target
}

// Automatic reports whether the enforcer adds and stops instances of a group because of its load.
// If it does not, why says which field prevents it.
func Automatic(s *fleet.GroupSpec) (ok bool, why string) {
	switch {
	case s.Scaling.Mode != fleet.ScalingDynamic:
		return false, "scalingMode is " + string(s.Scaling.Mode)
	case s.Static.Enabled:
		return false, "the group is static, and each of its instances has its own data"
	case s.Scaling.Max == 0:
		return false, "the group has no maxInstances"
	}
	return true, ""
}

// Target returns how many instances a group shall have: its minimum or decided, the target of its
// latest Decision, if that is higher. The group's other limits apply.
func Target(s *fleet.GroupSpec, decided int) int {
	n := max(0, s.Scaling.Min)
	if ok, _ := Automatic(s); ok {
		n = max(n, decided)
	}
	if s.Scaling.Max > 0 {
		n = min(n, s.Scaling.Max)
	}
	if names := len(naming.Fixed(s)); names > 0 {
		n = min(n, names)
	}
	return n
}
