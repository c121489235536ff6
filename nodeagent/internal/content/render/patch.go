package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

// patchedFile is a file that is being patched. It stays parsed between consecutive patches
// of its structure.
type patchedFile struct {
	name   string
	format Format
	text   []byte
	tree   *yaml.Node
	pairs  *properties
	// parsed is true if tree or pairs hold the current content, changed if they differ from text.
	parsed, changed bool
}

// Patch applies patches to a file in order. A patch that finds nothing to replace gives a note.
// If all values are set already, the bytes stay as they are. It returns Invalid, with the file's
// name, if the file cannot be parsed or its format cannot hold a value.
func Patch(name string, content []byte, patches []configfile.ConfigPatch) (out []byte, notes []string, err error) {
	f := &patchedFile{name: name, format: FormatOf(name), text: content}
	for _, p := range patches {
		note, err := f.apply(p)
		if err != nil {
			return nil, nil, invalidFile(name, "%s", errs.MessageOf(err))
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	if err := f.serialize(); err != nil {
		return nil, nil, invalidFile(name, "the patched file %s", errs.MessageOf(err))
	}
	return f.text, notes, nil
}

// outcome is the result of a structural patch.
type outcome int

const (
	absent  outcome = iota // there is nothing to replace
	equal                  // the value is set already
	altered                // the value was changed
)

func (f *patchedFile) apply(p configfile.ConfigPatch) (note string, err error) {
	if p.Op == configfile.PatchRegex {
		return f.replaceText(p)
	}
	if err := f.parse(); err != nil {
		return "", err
	}
	var what outcome
	if f.pairs != nil {
		what, err = f.pairs.patch(p)
	} else {
		what, err = f.patchTree(p)
	}
	f.changed = f.changed || what == altered
	if err == nil && what == absent {
		note = fmt.Sprintf("%s has nothing to replace at %s", f.name, p.Path)
	}
	return note, err
}

func (f *patchedFile) replaceText(p configfile.ConfigPatch) (note string, err error) {
	expr, err := p.Pattern()
	if err != nil {
		return "", err
	}
	replacement, err := p.Replacement(expr)
	if err != nil {
		return "", err
	}
	if err := f.serialize(); err != nil {
		return "", err
	}
	if !expr.Match(f.text) {
		return fmt.Sprintf("%s has no match for %s", f.name, p.Path), nil
	}
	f.text, err = replaceAll(f.text, expr, replacement)
	return "", err
}

// maxMatches limits the matches of a REGEX patch. Matches of an expression with many groups
// need much more memory than the file.
const maxMatches = 100_000

// replaceAll is expr.ReplaceAll, but fails if the text becomes too large.
func replaceAll(text []byte, expr *regexp.Regexp, replacement configfile.Replacement) ([]byte, error) {
	matches := expr.FindAllSubmatchIndex(text, maxMatches+1)
	if len(matches) > maxMatches {
		return nil, errs.New(errs.Invalid, "has more than %d matches for %s", maxMatches, expr)
	}
	var out []byte
	end := 0
	for _, m := range matches {
		out = append(out, text[end:m[0]]...)
		end = m[1]
		for _, part := range replacement {
			if part.Group == configfile.NoGroup {
				out = append(out, part.Text...)
			} else if from := m[2*part.Group]; from >= 0 {
				out = append(out, text[from:m[2*part.Group+1]]...)
			}
			if len(out) > MaxText {
				return nil, errs.New(errs.Invalid, "would be larger than %d MiB", MaxText>>20)
			}
		}
	}
	if out = append(out, text[end:]...); len(out) > MaxText {
		return nil, errs.New(errs.Invalid, "would be larger than %d MiB", MaxText>>20)
	}
	return out, nil
}

func (f *patchedFile) parse() (err error) {
	if f.parsed {
		return nil
	}
	if f.format == FormatProperties {
		if err := checkReadable(f.text); err != nil {
			return err
		}
		f.pairs = readProperties(f.text)
	} else {
		f.tree, err = read(f.format, f.text)
	}
	f.parsed = err == nil
	return err
}

// serialize formats the parsed content if it was changed.
func (f *patchedFile) serialize() (err error) {
	switch {
	case !f.changed:
	case f.pairs != nil:
		f.text = f.pairs.bytes()
	default:
		f.text, err = write(f.format, f.tree)
	}
	f.parsed, f.changed, f.pairs, f.tree = false, false, nil, nil
	return err
}

// patch sets a key's value. The path is the key as written in the file, or quoted.
func (p *properties) patch(patch configfile.ConfigPatch) (outcome, error) {
	value, err := readJSON(patch.Value)
	if err != nil {
		return absent, err
	}
	if value == nil || value.Kind != yaml.ScalarNode || value.Tag == tagNull {
		return absent, errs.New(errs.Invalid, "%s: the value of a property must be a string, a number or a boolean", patch.Path)
	}
	key := patch.Path
	if steps, err := configfile.ParsePatchPath(key); err == nil && len(steps) == 1 && !steps[0].IsIndex {
		key = steps[0].Key
	}
	i, have := p.at[key]
	switch {
	case have && p.lines[i].value == value.Value:
		return equal, nil
	case have || patch.Op == configfile.PatchSet:
		p.set(key, value.Value)
		return altered, nil
	}
	return absent, nil
}

func (f *patchedFile) patchTree(p configfile.ConfigPatch) (outcome, error) {
	steps, err := configfile.ParsePatchPath(p.Path)
	if err != nil {
		return absent, err
	}
	value, err := readJSON(p.Value)
	if err != nil || value == nil {
		return absent, err
	}
	if f.tree != nil {
		if at, err := descend(f.tree, steps, false); err == nil && at != nil && sameValue(at, value) {
			return equal, nil
		}
	} else if p.Op == configfile.PatchSet {
		f.tree = mapping()
	} else {
		return absent, nil
	}
	at, err := descend(f.tree, steps, p.Op == configfile.PatchSet)
	if err != nil {
		return absent, errs.New(errs.Invalid, "%s: %s", p.Path, errs.MessageOf(err))
	}
	if at == nil {
		return absent, nil
	}
	setValue(at, value)
	return altered, nil
}

// setValue replaces a node's value and keeps its comments and quotes.
func setValue(at, value *yaml.Node) {
	head, line, foot, style := at.HeadComment, at.LineComment, at.FootComment, yaml.Style(0)
	if quotes := yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle; value.Tag == tagString {
		style = at.Style & quotes
	}
	*at = *value
	at.HeadComment, at.LineComment, at.FootComment, at.Style = head, line, foot, style
}

// descend returns the node at a path, or nil if it does not exist. With create it creates
// missing nodes, and replaces null.
func descend(n *yaml.Node, steps []configfile.PatchStep, create bool) (*yaml.Node, error) {
	for _, s := range steps {
		if create && n.Kind == yaml.ScalarNode && (n.ShortTag() == tagNull || n.Kind == 0) {
			n.Kind, n.Tag, n.Value, n.Style = yaml.MappingNode, tagMap, "", 0
			if s.IsIndex {
				n.Kind, n.Tag = yaml.SequenceNode, tagSeq
			}
		}
		var (
			next *yaml.Node
			err  error
		)
		if s.IsIndex {
			next, err = element(n, s.Index, create)
		} else {
			next, err = member(n, s.Key, create)
		}
		if err != nil || next == nil {
			if !create {
				return nil, nil //nolint:nilnil // it does not exist
			}
			return nil, err
		}
		n = next
	}
	return n, nil
}

func element(n *yaml.Node, i int, create bool) (*yaml.Node, error) {
	switch {
	case n.Kind != yaml.SequenceNode:
		return nil, errs.New(errs.Invalid, "[%d] needs a list, but the value is not a list", i)
	case i < len(n.Content):
		return n.Content[i], nil
	case i > len(n.Content):
		return nil, errs.New(errs.Invalid, "[%d] would leave a gap: the list has %d", i, len(n.Content))
	case !create:
		return nil, nil //nolint:nilnil // it does not exist
	}
	n.Content = append(n.Content, scalar(tagNull, "null"))
	return n.Content[i], nil
}

// member returns a mapping's value. It finds keys that are not strings by their text, such as
// 1 and true.
func member(n *yaml.Node, key string, create bool) (*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, errs.New(errs.Invalid, "%s needs a mapping, but the value is not a mapping", strconv.Quote(key))
	}
	if i := find(n, canonical(scalar(tagString, key))); i >= 0 {
		return n.Content[i], nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == yaml.ScalarNode && k.Value == key {
			return n.Content[i+1], nil
		}
	}
	if !create {
		return nil, nil //nolint:nilnil // it does not exist
	}
	made := scalar(tagNull, "null")
	n.Content = append(n.Content, scalar(tagString, key), made)
	return made, nil
}

// withValues returns a patch with the placeholders in its strings replaced.
func withValues(p configfile.ConfigPatch, values map[string]string) (configfile.ConfigPatch, []string, error) {
	if !bytes.Contains(p.Value, []byte("%")) {
		return p, nil, nil
	}
	value, err := readJSON(p.Value)
	if err != nil || value == nil {
		return p, nil, err
	}
	if p.Op == configfile.PatchRegex {
		return regexWithValues(p, values)
	}
	unknown := fill(value, values)
	out, err := writeJSON(value)
	p.Value = []byte(strings.TrimSuffix(string(out), "\n"))
	return p, unknown, err
}

// regexWithValues replaces the placeholders in the text of a REGEX patch. A dollar sign or
// backslash in a value has no special meaning.
func regexWithValues(p configfile.ConfigPatch, values map[string]string) (out configfile.ConfigPatch, unknown []string, err error) {
	expr, err := p.Pattern()
	if err != nil {
		return p, nil, err
	}
	replacement, err := p.Replacement(expr)
	if err != nil {
		return p, nil, err
	}
	for n, part := range replacement {
		var more []string
		replacement[n].Text, more = Substitute(part.Text, values)
		unknown = append(unknown, more...)
	}
	p.Value, err = json.Marshal(replacement.String())
	return p, unknown, err
}

func fill(n *yaml.Node, values map[string]string) (unknown []string) {
	if n.Kind == yaml.ScalarNode && n.Tag == tagString {
		n.Value, unknown = Substitute(n.Value, values)
	}
	for _, c := range n.Content {
		unknown = append(unknown, fill(c, values)...)
	}
	return unknown
}
