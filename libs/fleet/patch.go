package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// PatchOp is what a config patch does.
type PatchOp string

// The operations.
const (
	PatchSet     PatchOp = "SET"     // gives a value, making what is missing on the way to it
	PatchReplace PatchOp = "REPLACE" // gives a value that is there another
	PatchRegex   PatchOp = "REGEX"   // replaces every match in the file's text
)

// ConfigPatch is one change to a configuration file of every instance of a group.
type ConfigPatch struct {
	// File is the file's path below the instance's directory, or a glob of several.
	File string `json:"file"`
	// Path is where the value lies, see ParsePatchPath; of REGEX the expression (RE2).
	Path string  `json:"path"`
	Op   PatchOp `json:"op"`
	// Value is the JSON value given; of REGEX a string in which $1 stands for a group.
	// Placeholders in its strings are replaced.
	Value json.RawMessage `json:"value"`
}

// Limits of patches.
const (
	// MaxPatternSteps is how many steps a pattern may have once it is compiled: a few
	// letters can stand for a hundred thousand of them, and matching takes that much longer.
	MaxPatternSteps = 1000
	maxPatchSteps   = 64
	maxPatchIndex   = 10_000
)

// PatchStep is one step down a file's structure: a key, or an index of a list.
type PatchStep struct {
	Key     string
	Index   int
	IsIndex bool
}

// ParsePatchPath reads a path: keys with dots between them, an index in brackets behind
// what is a list, and keys that hold dots or brackets in double quotes, in which \" and
// \\ stand for themselves: listeners[0]."forced.hosts".lobby. Invalid for anything else.
func ParsePatchPath(s string) ([]PatchStep, error) {
	var out []PatchStep
	for rest, first := s, true; rest != "" || first; first = false {
		var (
			step PatchStep
			err  error
		)
		if !first && rest[0] == '.' {
			if rest = rest[1:]; rest == "" || rest[0] == '[' {
				return nil, errs.New(errs.Invalid, "%q lacks a key behind a dot", clip(s))
			}
		} else if !first && rest[0] != '[' {
			return nil, errs.New(errs.Invalid, "%q lacks a dot before %q", clip(s), clip(rest))
		}
		if step, rest, err = patchStep(rest); err != nil {
			return nil, errs.New(errs.Invalid, "%q %s", clip(s), errs.MessageOf(err))
		}
		if out = append(out, step); len(out) > maxPatchSteps {
			return nil, errs.New(errs.Invalid, "%q has more than %d steps", clip(s), maxPatchSteps)
		}
	}
	return out, nil
}

// patchStep reads the step at the start of s.
func patchStep(s string) (step PatchStep, rest string, err error) {
	switch {
	case strings.HasPrefix(s, "["):
		digits, rest, ok := strings.Cut(s[1:], "]")
		n, err := strconv.ParseUint(digits, 10, 31)
		if !ok || err != nil || n > maxPatchIndex {
			return step, "", errs.New(errs.Invalid, "has no index from 0 to %d in brackets", maxPatchIndex)
		}
		return PatchStep{Index: int(n), IsIndex: true}, rest, nil
	case strings.HasPrefix(s, `"`):
		return quotedStep(s)
	}
	end := strings.IndexAny(s, `.["]`)
	if end < 0 {
		end = len(s)
	}
	if end == 0 {
		return step, "", errs.New(errs.Invalid, `lacks a key: write one that is empty or holds . [ ] or " in quotes`)
	}
	return PatchStep{Key: s[:end]}, s[end:], nil
}

func quotedStep(s string) (step PatchStep, rest string, err error) {
	var key strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return PatchStep{Key: key.String()}, s[i+1:], nil
		case c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			key.WriteByte(s[i])
		default:
			key.WriteByte(c)
		}
	}
	return step, "", errs.New(errs.Invalid, "has a quote that does not end")
}

// Pattern is the compiled expression of a REGEX patch; ^ and $ match at lines. Invalid
// for what is none and for one of more than MaxPatternSteps.
func (p ConfigPatch) Pattern() (*regexp.Regexp, error) {
	text := "(?m)" + p.Path
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, errs.New(errs.Invalid, "%q is no regular expression: %v", clip(p.Path), err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, errs.New(errs.Invalid, "%q is no regular expression: %v", clip(p.Path), err)
	}
	if n := len(program.Inst); n > MaxPatternSteps {
		return nil, errs.New(errs.Invalid, "%q is too large: written out it has %d steps, and may have %d; repeat less in it", clip(p.Path), n, MaxPatternSteps)
	}
	expr, err := regexp.Compile(text)
	if err != nil {
		return nil, errs.New(errs.Invalid, "%q is no regular expression: %v", clip(p.Path), err)
	}
	return expr, nil
}

// Replacement is the value of a REGEX patch: texts and groups of the expression in turn.
type Replacement []ReplacementPart

// ReplacementPart is a text with NoGroup, or the number of a group.
type ReplacementPart struct {
	Text  string
	Group int
}

// NoGroup is the group of a text.
const NoGroup = -1

// Replacement parses the value of a REGEX patch. It has the syntax of Java's
// Matcher.appendReplacement, which PrexorCloud's clients write: $1 is a
// group, with as many digits as name one that the expression has, so that $1O is the first
// group and an O. ${name} is a named group, and a backslash takes the meaning from what
// follows. ${1} is accepted too. Invalid for anything else and for a group that is not there.
func (p ConfigPatch) Replacement(expr *regexp.Regexp) (Replacement, error) {
	var value string
	if json.Unmarshal(p.Value, &value) != nil {
		return nil, errs.New(errs.Invalid, "value of a REGEX must be a string")
	}
	var parts Replacement
	var text []byte
	flush := func() {
		if len(text) > 0 {
			parts, text = append(parts, ReplacementPart{Text: string(text), Group: NoGroup}), text[:0]
		}
	}
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '$':
			group, length := groupOf(value[i+1:], expr)
			if length == 0 {
				return nil, errs.New(errs.Invalid, `value names no group of the expression at %q: write \$ for a dollar sign`, clip(value[i:]))
			}
			flush()
			parts = append(parts, ReplacementPart{Group: group})
			i += length
		case c == '\\' && i+1 == len(value):
			return nil, errs.New(errs.Invalid, `value ends in a backslash: write \\ for one`)
		default:
			if c == '\\' {
				i++
			}
			text = append(text, value[i])
		}
	}
	flush()
	return parts, nil
}

// String writes a replacement as the value that it was parsed from.
func (r Replacement) String() string {
	literal := strings.NewReplacer(`\`, `\\`, `$`, `\$`)
	var b strings.Builder
	for _, part := range r {
		if part.Group == NoGroup {
			b.WriteString(literal.Replace(part.Text))
		} else {
			fmt.Fprintf(&b, "${%d}", part.Group)
		}
	}
	return b.String()
}

// groupOf is the group that the text behind a dollar sign names, and how many bytes of the
// text that takes; 0 when it names none.
func groupOf(text string, expr *regexp.Regexp) (group, length int) {
	if strings.HasPrefix(text, "{") {
		name, _, closed := strings.Cut(text[1:], "}")
		group, err := strconv.Atoi(name)
		if err != nil {
			group = expr.SubexpIndex(name)
		}
		if closed && group >= 0 && group <= expr.NumSubexp() {
			return group, len(name) + 2
		}
		return 0, 0
	}
	for length < len(text) && text[length] >= '0' && text[length] <= '9' {
		n, err := strconv.Atoi(text[:length+1])
		if err != nil || n > expr.NumSubexp() {
			break
		}
		group = n
		length++
	}
	return group, length
}

// validate words what is wrong with a patch; nil when nothing is.
func (p ConfigPatch) validate() error {
	switch {
	case !CleanPath(p.File):
		return errs.New(errs.Invalid, "file %q leaves the instance's directory: give a relative path without ..", clip(p.File))
	case !json.Valid(p.Value):
		return errs.New(errs.Invalid, "needs a value")
	case len(p.Path) > maxValueBytes || !utf8.ValidString(p.File) || !utf8.ValidString(p.Path) || !utf8.Valid(p.Value):
		return errs.New(errs.Invalid, "must be text in UTF-8, and its path at most %d bytes", maxValueBytes)
	}
	var err error
	switch p.Op {
	case PatchSet, PatchReplace:
		_, err = ParsePatchPath(p.Path)
	case PatchRegex:
		var expr *regexp.Regexp
		if expr, err = p.Pattern(); err != nil {
			break
		}
		if _, err := p.Replacement(expr); err != nil {
			return err
		}
	default:
		return errs.New(errs.Invalid, "op must be SET, REPLACE or REGEX; %q is not", clip(string(p.Op)))
	}
	if err != nil {
		return errs.New(errs.Invalid, "path %s", errs.MessageOf(err))
	}
	return nil
}

// DefaultMergeFiles are merged by layer unless a group of the native dialect says
// otherwise: every file whose structure is known, at any depth.
func DefaultMergeFiles() []string {
	return []string{"**/*.yml", "**/*.yaml", "**/*.json", "**/*.toml", "**/*.properties"}
}

// DefaultFileModifications have their placeholders replaced unless a group of the native
// dialect says otherwise: every file of settings, at any depth.
func DefaultFileModifications() []string {
	return []string{"**/*.properties", "**/*.yml", "**/*.yaml", "**/*.toml", "**/*.json", "**/*.cfg", "**/*.conf", "**/*.txt"}
}

// patches are all patches of a spec: those by file and path, in that order, then the rules in theirs.
func (s GroupSpec) patches() []ConfigPatch {
	var out []ConfigPatch
	byFile := s.Composition.ConfigPatches
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		for _, path := range slices.Sorted(maps.Keys(byFile[file])) {
			out = append(out, ConfigPatch{File: file, Path: path, Op: PatchSet, Value: byFile[file][path]})
		}
	}
	return append(out, s.ConfigRules...)
}

// validateComposition checks what the files of an instance are made with.
func (s GroupSpec) validateComposition() []error {
	var p problems
	p.check(len(s.MergeFiles) <= maxEntries, "mergeFiles", "must have at most %d entries", maxEntries)
	for i, f := range s.MergeFiles {
		p.check(CleanPath(f), fmt.Sprintf("mergeFiles[%d]", i), "%q leaves the instance's directory: give a relative path without ..", clip(f))
	}
	all := s.patches()
	p.check(len(all) <= maxEntries, "configPatches", "and configRules must have at most %d entries together", maxEntries)
	if len(all) > maxEntries {
		return p.list
	}
	for i, patch := range all {
		field := "configPatches"
		if n := i - (len(all) - len(s.ConfigRules)); n >= 0 {
			field = fmt.Sprintf("configRules[%d]", n)
		}
		if err := patch.validate(); err != nil {
			p.check(false, field, "%s", errs.MessageOf(err))
		}
	}
	return p.list
}
