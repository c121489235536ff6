package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

var (
	// groupNamePattern, segmentPattern and variablePattern are the rules of libs/fleet.
	groupNamePattern = regexp.MustCompile(`^[a-z0-9_][a-z0-9_-]{0,31}$`)
	segmentPattern   = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$`)
	variablePattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

	notInGroupName = regexp.MustCompile(`[^a-z0-9_-]+`)
	notInSegment   = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
	notInVariable  = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// names are the names that were given. The keys are names in the source.
type names struct {
	groups    map[string]string
	templates map[string]string
	taken     map[string]bool
}

func newNames() names {
	return names{groups: map[string]string{}, templates: map[string]string{}, taken: map[string]bool{}}
}

// groupName returns the valid and unique name of a new group, and notes a change.
func (r *report) groupName(object, wanted string) string {
	valid := wanted
	if !groupNamePattern.MatchString(valid) {
		valid = notInGroupName.ReplaceAllString(strings.ToLower(valid), "-")
		valid = cmp.Or(strings.TrimRight(cut(strings.TrimLeft(valid, "-"), 32), "-"), "group")
	}
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
		out = cut(name, 32-len(suffix)) + suffix
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

// segment returns a part of a template's name, made valid.
func segment(name string) string {
	if segmentPattern.MatchString(name) {
		return name
	}
	out := cut(strings.TrimLeft(notInSegment.ReplaceAllString(name, "-"), "."), 64)
	if out == "" {
		return "template"
	}
	return out
}

// variable returns the name of a placeholder or environment variable, made valid.
func variable(name string) string {
	out := notInVariable.ReplaceAllString(name, "_")
	if !variablePattern.MatchString(out) {
		out = "_" + out
	}
	return out
}

// cut shortens an ASCII text.
func cut(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}
