// Package names makes names valid. Its rules are those of libs/fleet.
package names

import (
	"cmp"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

const (
	// MaxGroup and maxSegment are the numbers of characters of a name.
	MaxGroup   = 32
	maxSegment = 64
)

var (
	groupPattern    = lazyregexp.New(`^[a-z0-9_][a-z0-9_-]{0,31}$`)
	segmentPattern  = lazyregexp.New(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$`)
	variablePattern = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

	notInGroup   = lazyregexp.New(`[^a-z0-9_-]+`)
	notInSegment = lazyregexp.New(`[^A-Za-z0-9_.-]+`)
)

// IsGroup reports whether a group can have a name.
func IsGroup(name string) bool { return groupPattern().MatchString(name) }

// IsVariable reports whether a placeholder or a variable of the environment can have a name.
func IsVariable(name string) bool { return variablePattern().MatchString(name) }

// Group returns the name of a group, made valid.
func Group(wanted string) string {
	if IsGroup(wanted) {
		return wanted
	}
	name := notInGroup().ReplaceAllString(strings.ToLower(wanted), "-")
	return cmp.Or(strings.TrimRight(Cut(strings.TrimLeft(name, "-"), MaxGroup), "-"), "group")
}

// Segment returns a part of a template's name, made valid.
func Segment(wanted string) string {
	if segmentPattern().MatchString(wanted) {
		return wanted
	}
	name := strings.TrimLeft(notInSegment().ReplaceAllString(wanted, "-"), ".")
	return cmp.Or(Cut(name, maxSegment), "template")
}

// Variable returns the name of a placeholder or of a variable of the environment, made valid.
func Variable(wanted string) string {
	name := notInSegment().ReplaceAllString(wanted, "_")
	if !IsVariable(name) {
		return "_" + name
	}
	return name
}

// Cut shortens an ASCII text.
func Cut(s string, most int) string { return s[:min(len(s), most)] }
