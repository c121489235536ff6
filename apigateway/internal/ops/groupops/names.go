package groupops

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/naming"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxNumbered bounds the groups whose GROUP-N a change may give as fixed names of another group. The
// transaction compares each.
const maxNumbered = 16

// maxStranded bounds the instances that an error names.
const maxStranded = 10

// newNames returns the fixed names of a spec that the present one does not give, by their index.
func newNames(present *fleet.GroupSpec, spec fleet.GroupSpec) map[int]string {
	out := map[int]string{}
	for n, name := range naming.Fixed(&spec) {
		if present == nil || !slices.Contains(naming.Fixed(present), name) {
			out[n] = name
		}
	}
	return out
}

// names checks that the fixed names of a group are unique in the fleet, and that no instance with data
// loses its name.
func names(s *view.Snapshot, group fleet.GroupName, present *fleet.GroupSpec, spec fleet.GroupSpec) []error {
	var problems []error
	given := newNames(present, spec)
	for n, name := range naming.Fixed(&spec) {
		if _, ok := given[n]; ok {
			if user := userOfName(s, group, name); user != "" {
				problems = append(problems, errs.Field(fmt.Sprintf("staticInstanceNames[%d]", n), "%q is %s: use another name", name, user))
			}
		}
	}
	if groups := numbered(group, given); len(groups) > maxNumbered {
		problems = append(problems, errs.Field("staticInstanceNames",
			"has new names of the form GROUP-N for %d groups, at most %d are allowed in one change: use other names, or add them in several changes", len(groups), maxNumbered))
	}
	if len(naming.Fixed(&spec)) > 0 && (present == nil || len(naming.Fixed(present)) == 0) {
		if left := stranded(s, group, spec); len(left) > 0 {
			problems = append(problems, errs.Field("staticInstanceNames",
				"does not have the names of the instances %s: add these names to keep the instances with their data, or delete the instances first", strings.Join(left, ", ")))
		}
	}
	if present == nil {
		problems = append(problems, nameOfGroup(s, group)...)
	}
	return problems
}

// numbered returns the other groups whose instances would have a name that is given.
func numbered(group fleet.GroupName, given map[int]string) []fleet.GroupName {
	out := map[fleet.GroupName]bool{}
	for _, name := range given {
		if other, _, ok := fleet.ParseInstanceName(strings.ToLower(name)); ok && other != group && other.Validate() == nil {
			out[other] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// userOfName returns what uses a name for an instance outside the group, or with other letters in it, ""
// for nothing.
func userOfName(s *view.Snapshot, group fleet.GroupName, name string) string {
	for other, g := range s.Groups.All() {
		if other != group && slices.ContainsFunc(naming.Fixed(&g.Spec), func(n string) bool { return strings.EqualFold(n, name) }) {
			return fmt.Sprintf("in staticInstanceNames of group %s", other)
		}
	}
	if other, _, ok := fleet.ParseInstanceName(strings.ToLower(name)); ok && other != group {
		if _, ok := s.Groups.Get(other); ok {
			return fmt.Sprintf("a name for instances of group %s", other)
		}
	}
	if claim, ok := s.Name(name); ok {
		if i, ok := s.Instances.Get(claim.ID); ok && (i.Intent.Group != group || i.Intent.Name != name) {
			return fmt.Sprintf("the name of an instance of group %s, %s", i.Intent.Group, i.Intent.Name)
		}
	}
	return ""
}

// stranded returns the names of a group's instances that a spec with fixed names does not have.
func stranded(s *view.Snapshot, group fleet.GroupName, spec fleet.GroupSpec) []string {
	var out []string
	for i := range s.GroupInstances(group) {
		if !slices.Contains(naming.Fixed(&spec), i.Intent.Name) {
			out = append(out, i.Intent.Name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxStranded)]
}

// nameOfGroup returns a problem if another group has a fixed name that instances of a new group would
// have.
func nameOfGroup(s *view.Snapshot, group fleet.GroupName) []error {
	for other, g := range s.Groups.All() {
		for _, name := range naming.Fixed(&g.Spec) {
			if of, _, ok := fleet.ParseInstanceName(strings.ToLower(name)); ok && of == group && other != group {
				return []error{errs.Field("name", "must not be %s: group %s has %q in its staticInstanceNames, which would be the name of an instance", group, other, txn.Clip(name))}
			}
		}
	}
	return nil
}

// addNameGuards makes a write of a group fail if another gateway gives one of its names meanwhile.
func addNameGuards(c *txn.Change, s *view.Snapshot, group fleet.GroupName, present *fleet.GroupSpec, spec fleet.GroupSpec) {
	var rev int64
	if m, ok := s.NameMarks.Get("all"); ok {
		rev = m.ModRev
	}
	given := newNames(present, spec)
	switch {
	case len(given) > 0:
		c.Writes = append(c.Writes, store.Replace(keys.MarkOfNames(), keys.NameMark{}, rev))
	case present == nil:
		c.Guards = append(c.Guards, store.Unchanged(keys.MarkOfNames(), rev))
	}
	for _, other := range numbered(group, given) {
		c.Guards = append(c.Guards, store.Missing(keys.Group(other)))
	}
}
