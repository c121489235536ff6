package groupops

import (
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/autoscale"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/store/view"
)

// PolicyProblems returns what is wrong with the scaling policies of a spec that its own validation does not
// see: cron expressions, time zones, expressions and URLs. It ignores the policies that the present spec
// has too.
func PolicyProblems(s *view.Snapshot, present *fleet.GroupSpec, spec fleet.GroupSpec) []error {
	if len(scalepolicy.Validate(spec.Scaling.Policies, spec.Scaling.Combine)) > 0 {
		return nil // the validation of the spec names these
	}
	var allowed egress.Allowed
	if list := s.Config().Patch.AllowedEgress; list != nil {
		allowed = egress.Parse(*list)
	}
	var problems []error
	for n, p := range spec.Scaling.Policies {
		if present != nil && slices.Contains(present.Scaling.Policies, p) {
			continue
		}
		if err := autoscale.Check(p, allowed); err != nil {
			problems = append(problems, errs.Field(fmt.Sprintf("scalingPolicies[%d].%s", n, errs.FieldOf(err)), "%s", errs.MessageOf(err)))
		}
	}
	return problems
}
