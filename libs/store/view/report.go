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
	old, _ := c.Before.(*reports.Report)
	r, _ := c.After.(*reports.Report)
	was, is := old != nil && old.Parted, r != nil && r.Parted
	switch {
	case was && is:
		r.Instances = old.Instances
	case was:
		for n, part := range maps.Collect(s.ReportPartsOn(node)) {
			full := *part
			full.Instances = maps.Collect(ofPart(old.Instances, n))
			s.setReportPart(node, n, &full)
		}
	case is:
		r.Instances = map[fleet.InstanceID]reports.InstanceReport{}
		for n, part := range maps.Collect(s.ReportPartsOn(node)) {
			maps.Copy(r.Instances, part.Instances)
			s.setReportPart(node, n, withoutFigures(part))
		}
	}
}

// applyReportPart replaces a part of the figures and updates the node's report, which keeps them. The change
// becomes a change of the report.
func (s *Snapshot) applyReportPart(c *Change) {
	node := fleet.NodeID(c.Key[0])
	n, err := strconv.Atoi(c.Key[1])
	part := Change{After: c.After}
	set(s.reportParts, c.Key[0]+"/"+c.Key[1], &part)
	c.Kind, c.Key = KindReport, c.Key[:1]
	old, ok := s.Reports.Get(node)
	if !ok { // its report follows in the same transaction, or was removed
		c.After = nil
		return
	}
	c.Before, c.After = old, old
	if !old.Parted || err != nil {
		return
	}
	r := *old
	r.Instances = maps.Clone(old.Instances)
	for id := range ofPart(old.Instances, n) {
		delete(r.Instances, id)
	}
	if is, ok := part.After.(*reports.ReportPart); ok {
		maps.Copy(r.Instances, is.Instances)
		s.setReportPart(node, n, withoutFigures(is))
	}
	s.Reports.tree.Set(node, &r)
	c.After = &r
}

// ofPart yields the figures of the instances in a part.
func ofPart(all map[fleet.InstanceID]reports.InstanceReport, part int) iter.Seq2[fleet.InstanceID, reports.InstanceReport] {
	return func(yield func(fleet.InstanceID, reports.InstanceReport) bool) {
		for id, r := range all {
			if id.Part() == part && !yield(id, r) {
				return
			}
		}
	}
}

// withoutFigures returns a part whose figures the report has.
func withoutFigures(part *reports.ReportPart) *reports.ReportPart {
	return &reports.ReportPart{Rev: part.Rev, At: part.At}
}

func (s *Snapshot) setReportPart(node fleet.NodeID, n int, part *reports.ReportPart) {
	s.reportParts.tree.Set(string(node)+"/"+strconv.Itoa(n), part)
}

// ReportPartsOn returns the parts of the figures of a node's instances. Only the report has the figures.
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
