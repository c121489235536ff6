package importer

import (
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/importer/names"
)

// given are the names that were given. The keys are names in the source.
type given struct {
	groups    map[string]string
	templates map[string]string
	taken     map[string]bool
}

func newGiven() given {
	return given{groups: map[string]string{}, templates: map[string]string{}, taken: map[string]bool{}}
}

// groupName returns the valid and unique name of a new group, and notes a change.
func (r *report) groupName(object, wanted string) string {
	valid := names.Group(wanted)
	name := r.unique("group ", valid)
	switch {
	case name != valid:
		r.note(object, "name", wanted, "The group is named %s, because another one is named %s.", name, valid)
	case name != wanted:
		r.note(object, "name", wanted, "The group is named %s: names have 1 to 32 of a-z, 0-9, _ and -.", name)
	}
	if _, twice := r.names.groups[wanted]; !twice {
		r.names.groups[wanted] = name
	}
	return name
}

// unique returns a name that no object of a kind has yet.
func (r *report) unique(kind, name string) string {
	out := name
	for n := 2; r.names.taken[kind+out]; n++ {
		suffix := fmt.Sprintf("-%d", n)
		out = names.Cut(name, names.MaxGroup-len(suffix)) + suffix
	}
	r.names.taken[kind+out] = true
	return out
}

// groupOf returns the name in Orrery of a group that the source names.
func (r *report) groupOf(source string) string {
	if name, ok := r.names.groups[source]; ok {
		return name
	}
	return source
}

// groupsOf returns the names in Orrery of groups.
func (r *report) groupsOf(source []string) []string {
	out := []string{}
	for _, s := range source {
		out = append(out, r.groupOf(s))
	}
	return out
}
