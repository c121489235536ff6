package bodycache

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Instance has the records that an instance's representation is built from, in either dialect.
type Instance struct {
	instance *fleet.Instance
	plan     *fleet.StoredPlan
	group    *fleet.Group // used if the plan no longer exists
	node     *fleet.Node
	report   *reports.Report
	move     *move.Move
	copied   *move.Copy
}

// InstanceOf returns the current records of an instance.
func InstanceOf(s *view.Snapshot, i *fleet.Instance) Instance {
	out := Instance{instance: i}
	var ok bool
	if out.plan, ok = s.Plans.Get(i.Intent.Plan); !ok {
		out.group, _ = s.Groups.Get(i.Intent.Group)
	}
	node := i.Node()
	out.node, _ = s.Nodes.Get(node)
	out.report, _ = s.Reports.Get(node)
	out.move, out.copied = s.Move(i.Intent.ID)
	return out
}

// JoinedOf returns the version of all records that an instance joins, and of the names. It does not
// change with what agents report, which they do all the time.
func JoinedOf(s *view.Snapshot) int64 {
	return s.Version(view.KindIntent, view.KindPlacement, view.KindOrder, view.KindStatus, view.KindPending, view.KindName)
}

// InstancesOf returns the version of all records that instances are built from.
func InstancesOf(s *view.Snapshot) int64 {
	return s.Version(view.KindIntent, view.KindPlacement, view.KindOrder, view.KindStatus, view.KindPending,
		view.KindPlan, view.KindGroup, view.KindNode, view.KindReport, view.KindMove, view.KindCopy)
}
