package view

import (
	"iter"
	"maps"
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// applyReport replaces a node's report. Its instances' figures come from the parts, unless an
// older agent wrote them into the report.
func (s *Snapshot) applyReport(c *Change) {
	node := fleet.NodeID(c.Key[0])
	set(s.Reports, node, c)
	r, ok := c.After.(*reports.Report)
	if !ok || !r.Parted {
		return
	}
	r.Instances = map[fleet.InstanceID]reports.InstanceReport{}
	for _, part := range s.ReportPartsOn(node) {
		maps.Copy(r.Instances, part.Instances)
	}
}

// applyReportPart replaces a part of the figures and updates the node's report. The change becomes
// a change of the report.
func (s *Snapshot) applyReportPart(c *Change) {
	node := fleet.NodeID(c.Key[0])
	part := Change{After: c.After}
	set(s.reportParts, c.Key[0]+"/"+c.Key[1], &part)
	c.Kind, c.Key = KindReport, c.Key[:1]
	old, ok := s.Reports.Get(node)
	if !ok { // its report follows in the same transaction, or was removed
		c.After = nil
		return
	}
	c.Before, c.After = old, old
	if !old.Parted {
		return
	}
	r := *old
	r.Instances = maps.Clone(old.Instances)
	if was, ok := part.Before.(*reports.ReportPart); ok {
		for id := range was.Instances {
			delete(r.Instances, id)
		}
	}
	if is, ok := part.After.(*reports.ReportPart); ok {
		maps.Copy(r.Instances, is.Instances)
	}
	s.Reports.tree.Set(node, &r)
	c.After = &r
}

// ReportPartsOn returns the parts of the figures of a node's instances.
func (s *Snapshot) ReportPartsOn(n fleet.NodeID) iter.Seq2[int, *reports.ReportPart] {
	return parts(s.reportParts, n)
}

// FiguresUnchanged returns guards that nothing newer was reported about an instance on a node,
// e.g. no player has joined it since.
func (s *Snapshot) FiguresUnchanged(n fleet.NodeID, id fleet.InstanceID) store.Guard {
	r, ok := s.Reports.Get(n)
	if !ok {
		return store.Missing(keys.Report(n))
	}
	if !r.Parted {
		return store.Unchanged(keys.Report(n), r.ModRev)
	}
	var rev int64
	if part, ok := s.reportParts.Get(string(n) + "/" + strconv.Itoa(id.Part())); ok {
		rev = part.ModRev
	}
	return store.Unchanged(keys.ReportPart(n, id.Part()), rev)
}

// parts yields the numbered records of a node in a table by "<node>/<part>".
func parts[T any](t Table[string, T], n fleet.NodeID) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for number, p := range under(t, string(n)+"/") {
			if part, err := strconv.Atoi(number); err == nil && !yield(part, p) {
				return
			}
		}
	}
}
