package nodeops

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// StaticData is the directory of a static instance on a node.
type StaticData struct {
	Name  string
	Group fleet.GroupName
	// ID is empty if the instance has no record.
	ID fleet.InstanceID
	// Bytes is the last reported size; nil if unknown.
	Bytes *int64
}

// DataOn returns the known data of static instances on a node, in order of name. Instances that may
// move when their node is lost are not listed: their data is on shared storage. The data of an instance that was moved
// is on its new node, also before it starts there.
func DataOn(s *view.Snapshot, node fleet.NodeID) []StaticData {
	all := map[string]StaticData{}
	if r, ok := s.Reports.Get(node); ok {
		for dir, bytes := range r.StaticBytes {
			group, name, _ := strings.Cut(dir, "/")
			all[dir] = StaticData{Name: name, Group: fleet.GroupName(group), Bytes: &bytes}
		}
	}
	add := func(i *fleet.Instance) {
		p := i.Placement
		stored, ok := s.Plans.Get(p.Plan)
		if !ok || !stored.Plan.Static {
			return
		}
		dir := string(p.Group) + "/" + p.Name
		if stored.Plan.Exclusive() {
			delete(all, dir)
			return
		}
		found := all[dir]
		found.Name, found.Group, found.ID = p.Name, p.Group, i.Intent.ID
		all[dir] = found
	}
	for i := range s.NodeInstances(node) {
		if i.Moved() == nil {
			add(i)
		} else {
			delete(all, string(i.Placement.Group)+"/"+i.Placement.Name) // its data was copied to another node
		}
	}
	for _, i := range s.Instances.All() {
		if to := i.Moved(); to != nil && to.Node == node {
			add(i)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b StaticData) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Group, b.Group))
	})
}

// maxData bounds the directories that a message names.
const maxData = 10

// hasData returns the error for deleting a node that has data.
func hasData(s *view.Snapshot, node fleet.NodeID, data []StaticData) error {
	asOf := ""
	if r, ok := s.Reports.Get(node); ok {
		asOf = ", as reported at " + r.At.Format(time.RFC3339)
	}
	return errs.New(errs.Conflict,
		"node %s has data of %s%s: %s. Deleting the node gives it up: ask for that with discardData=true (orrery delete node %[1]s --discard-data), or start the node's agent again to keep the data",
		node, txn.Count(len(data), "static instance"), asOf, listed(data))
}

// discarded returns the audit details of a deletion.
func discarded(data []StaticData) string {
	if len(data) == 0 {
		return ""
	}
	return "with data of " + txn.Count(len(data), "static instance") + ": " + listed(data)
}

func listed(data []StaticData) string {
	var out []string
	for _, d := range data[:min(len(data), maxData)] {
		out = append(out, fmt.Sprintf("%s (%s)", d.Name, sized(d.Bytes)))
	}
	if more := len(data) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// sized formats a size.
func sized(bytes *int64) string {
	switch {
	case bytes == nil:
		return "size unknown"
	case *bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(*bytes)/(1<<30))
	case *bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(*bytes)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", (*bytes+1<<10-1)>>10)
}
