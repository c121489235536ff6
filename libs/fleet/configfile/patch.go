// Package configfile holds what Orrery changes in configuration files: placeholders in texts,
// and patches of values.
package configfile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// PatchOp is the operation of a config patch.
type PatchOp string

// The operations.
const (
	PatchSet     PatchOp = "SET"     // sets a value and creates missing parents
	PatchReplace PatchOp = "REPLACE" // replaces an existing value
	PatchRegex   PatchOp = "REGEX"   // replaces every match in the file's text
)

// ConfigPatch is one change to a configuration file of every instance of a group.
type ConfigPatch struct {
	// File is a path below the instance's directory, or a glob.
	File string `json:"file"`
	// Path locates the value, see ParsePatchPath. For REGEX it is the expression (RE2).
	Path string  `json:"path"`
	Op   PatchOp `json:"op"`
	// Value is the new JSON value. For REGEX it is a string in which $1 refers to a group.
	// Placeholders in its strings are replaced.
	Value json.RawMessage `json:"value"`
}

// Limits of patches.
const (
	// MaxPatternSteps bounds the number of instructions of a compiled pattern. A few letters can
	// compile to a hundred thousand, and matching takes time in proportion.
	MaxPatternSteps = 1000
	maxPatchSteps   = 64
	maxPatchIndex   = 10_000
)

// PatchStep is one step down a file's structure: a key or a list index.
type PatchStep struct {
	Key     string
	Index   int
	IsIndex bool
}

// ParsePatchPath parses a path such as listeners[0]."forced.hosts".lobby: keys separated by dots,
// with list indexes in brackets. Keys with dots or brackets are in double quotes, with \" and \\
// as escapes. The error is Invalid.
func ParsePatchPath(s string) ([]PatchStep, error) {
	var out []PatchStep
	for rest, first := s, true; rest != "" || first; first = false {
		var (
			step PatchStep
			err  error
		)
		if !first && rest[0] == '.' {
			if rest = rest[1:]; rest == "" || rest[0] == '[' {
				return nil, errs.New(errs.Invalid, "%q lacks a key after a dot", validate.Clip(s))
			}
		} else if !first && rest[0] != '[' {
			return nil, errs.New(errs.Invalid, "%q lacks a dot before %q", validate.Clip(s), validate.Clip(rest))
		}
		if step, rest, err = patchStep(rest); err != nil {
			return nil, errs.New(errs.Invalid, "%q %s", validate.Clip(s), errs.MessageOf(err))
		}
		if out = append(out, step); len(out) > maxPatchSteps {
			return nil, errs.New(errs.Invalid, "%q has more than %d steps", validate.Clip(s), maxPatchSteps)
		}
	}
	return out, nil
}

// patchStep parses the step at the start of s.
func patchStep(s string) (step PatchStep, rest string, err error) {
	switch {
	case strings.HasPrefix(s, "["):
		digits, rest, ok := strings.Cut(s[1:], "]")
		n, err := strconv.ParseUint(digits, 10, 31)
		if !ok || err != nil || n > maxPatchIndex {
			return step, "", errs.New(errs.Invalid, "needs an index from 0 to %d in brackets", maxPatchIndex)
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
		return step, "", errs.New(errs.Invalid, `lacks a key: quote a key that is empty or contains . [ ] or "`)
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
	return step, "", errs.New(errs.Invalid, "has an unclosed quote")
}

// Pattern returns the compiled expression of a REGEX patch, in which ^ and $ match at line
// boundaries. The error is Invalid if it does not compile or exceeds MaxPatternSteps.
func (p ConfigPatch) Pattern() (*regexp.Regexp, error) {
	text := "(?m)" + p.Path
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, errs.New(errs.Invalid, "%q is not a regular expression: %v", validate.Clip(p.Path), err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, errs.New(errs.Invalid, "%q is not a regular expression: %v", validate.Clip(p.Path), err)
	}
	if n := len(program.Inst); n > MaxPatternSteps {
		return nil, errs.New(errs.Invalid, "%q is too complex: it compiles to %d steps, at most %d are allowed; use fewer or smaller repetitions", validate.Clip(p.Path), n, MaxPatternSteps)
	}
	expr, err := regexp.Compile(text)
	if err != nil {
		return nil, errs.New(errs.Invalid, "%q is not a regular expression: %v", validate.Clip(p.Path), err)
	}
	return expr, nil
}

// Replacement is the parsed value of a REGEX patch: literal texts and group references.
type Replacement []ReplacementPart

// ReplacementPart is a literal text (with Group set to NoGroup) or a group number.
type ReplacementPart struct {
	Text  string
	Group int
}

// NoGroup is the Group of a literal text.
const NoGroup = -1

// Replacement parses the value of a REGEX patch. It uses the syntax of Java's
// Matcher.appendReplacement, because PrexorCloud's clients do: $1 is a group, with as many digits
// as still name a group of the expression, so $1O is group 1 and the letter O. ${name} is a named
// group, and a backslash escapes the next character. ${1} is accepted too. The error is Invalid.
func (p ConfigPatch) Replacement(expr *regexp.Regexp) (Replacement, error) {
	var value string
	if json.Unmarshal(p.Value, &value) != nil {
		return nil, errs.New(errs.Invalid, "the value of a REGEX patch must be a string")
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
				return nil, errs.New(errs.Invalid, `the value refers to an unknown group at %q: use \$ for a dollar sign`, validate.Clip(value[i:]))
			}
			flush()
			parts = append(parts, ReplacementPart{Group: group})
			i += length
		case c == '\\' && i+1 == len(value):
			return nil, errs.New(errs.Invalid, `the value ends in a backslash: use \\ for a backslash`)
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

// String returns a replacement in the syntax it is parsed from.
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

// groupOf returns the group named by the text after a dollar sign and the length of the name in
// bytes. length is 0 if it names none.
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

// Validate returns what is wrong with a patch, or nil.
func (p ConfigPatch) Validate() error {
	switch {
	case !validate.CleanPath(p.File):
		return errs.New(errs.Invalid, "file %q leaves the instance's directory: use a relative path without ..", validate.Clip(p.File))
	case !json.Valid(p.Value):
		return errs.New(errs.Invalid, "needs a value in JSON")
	case len(p.Path) > validate.MaxValueBytes || !utf8.ValidString(p.File) || !utf8.ValidString(p.Path) || !utf8.Valid(p.Value):
		return errs.New(errs.Invalid, "must be valid UTF-8, with a path of at most %d bytes", validate.MaxValueBytes)
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
		return errs.New(errs.Invalid, "op must be SET, REPLACE or REGEX, not %q", validate.Clip(string(p.Op)))
	}
	if err != nil {
		return errs.New(errs.Invalid, "path %s", errs.MessageOf(err))
	}
	return nil
}

// DefaultMergeFiles returns the default of MergeFiles in the native API: every file in a known
// format, at any depth.
func DefaultMergeFiles() []string {
	return []string{"**/*.yml", "**/*.yaml", "**/*.json", "**/*.toml", "**/*.properties"}
}

// DefaultFileModifications returns the default of FileModifications in the native API: every
// settings file, at any depth.
func DefaultFileModifications() []string {
	return []string{"**/*.properties", "**/*.yml", "**/*.yaml", "**/*.toml", "**/*.json", "**/*.cfg", "**/*.conf", "**/*.txt"}
}
