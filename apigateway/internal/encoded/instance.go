package encoded

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Instance is what an instance is shown from, in either dialect.
type Instance struct {
	instance *fleet.Instance
	plan     *fleet.StoredPlan
	group    *fleet.Group // in the place of a plan that is no more
	node     *fleet.Node
	report   *fleet.Report
}

// InstanceOf is what an instance is shown from now.
func InstanceOf(s *view.Snapshot, i *fleet.Instance) Instance {
	out := Instance{instance: i}
	var ok bool
	if out.plan, ok = s.Plans.Get(i.Intent.Plan); !ok {
		out.group, _ = s.Groups.Get(i.Intent.Group)
	}
	node := i.Node()
	out.node, _ = s.Nodes.Get(node)
	out.report, _ = s.Reports.Get(node)
	return out
}

// InstancesOf is the version of all that instances are shown from.
func InstancesOf(s *view.Snapshot) int64 {
	return s.Version(view.KindIntent, view.KindPlacement, view.KindOrder, view.KindStatus, view.KindPending,
		view.KindPlan, view.KindGroup, view.KindNode, view.KindReport)
}
