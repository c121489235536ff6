// Package validate checks fields of records: limits of texts and lists, and a collector that
// gathers all problems of a record.
package validate

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// Limits of the free-form parts of a spec.
const (
	MaxEntries     = 256
	MaxValueBytes  = 32 << 10
	MaxCommand     = 16 << 10
	MaxStopCommand = 1000
	MaxInstances   = 100_000
	MaxGraceSecond = 24 * 3600
	MaxBufferSlots = 1_000_000
	// MaxBufferPercent is below 100, because slots with players are never free.
	MaxBufferPercent = 99
	maxSeconds       = 10 * 365 * 24 * 3600 // ten years: a time.Duration does not overflow
	MaxPriority      = 1_000_000            // positive or negative: differences do not overflow
	// MaxSpecBytes and MaxStartBytes keep a plan, an intent and a placement well below the size
	// limit of a transaction.
	MaxSpecBytes  = 256 << 10
	MaxStartBytes = 64 << 10
)

var (
	EnvNamePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
	// InstanceNamePattern matches the instance names of static groups.
	InstanceNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	SignalNames         = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL"}
)

// Problems collects what is wrong with a record, as Invalid errors that name a field.
type Problems struct{ List []error }

// Check adds a problem of a field unless ok.
func (p *Problems) Check(ok bool, field, format string, args ...any) {
	if !ok {
		p.List = append(p.List, errs.Field(field, format, args...))
	}
}

// Seconds checks a duration in seconds. 0 is allowed.
func (p *Problems) Seconds(field string, v int) {
	p.Check(v >= 0 && v <= maxSeconds, field, "must be between 0 and %d, is %d", maxSeconds, v)
}

// AddAll adds the problems of a part.
func (p *Problems) AddAll(es []error) { p.List = append(p.List, es...) }

// OneOf reports whether a value is one of those allowed.
func OneOf[T ~string](v T, allowed ...T) bool { return slices.Contains(allowed, v) }

// Placeholders checks the names and values of placeholders.
func (p *Problems) Placeholders(field string, values map[string]string) {
	p.Check(len(values) <= MaxEntries, field, "must have at most %d entries", MaxEntries)
	for _, k := range slices.Sorted(maps.Keys(values)) {
		v := values[k]
		p.Check(EnvNamePattern.MatchString(k), field, "%q is not a placeholder name", Clip(k))
		p.Check(len(v) <= MaxValueBytes && !strings.ContainsRune(v, 0), field, "%s must be at most %d bytes without NUL", Clip(k), MaxValueBytes)
	}
}

// Paths checks a list of paths below an instance's directory.
func (p *Problems) Paths(field string, paths []string) {
	p.Check(len(paths) <= MaxEntries, field, "must have at most %d entries", MaxEntries)
	for i, f := range paths {
		p.Check(CleanPath(f), fmt.Sprintf("%s[%d]", field, i), "%q leaves the instance's directory: use a relative path without ..", Clip(f))
	}
}

// CleanPath reports whether p is a relative slash path without "..".
func CleanPath(p string) bool {
	if p == "" || len(p) > 1024 || strings.ContainsAny(p, "\x00\\") || path.IsAbs(p) {
		return false
	}
	return !slices.Contains(strings.Split(p, "/"), "..")
}

// HasControl reports whether s contains a control character other than tab.
func HasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && unicode.IsControl(r) })
}

// Clip shortens a value for a message.
func Clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// ValidSegment reports whether s can be a segment of a key: 1 to 64 letters, digits, _ . and -, not
// starting with a period.
func ValidSegment(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '.' {
		return false
	}
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}

// ValidValue reports whether s is valid UTF-8 without NUL.
func ValidValue(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
