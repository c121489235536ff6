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
	"github.com/orreryhq/orrery/libs/fleet"
)

// patched is a file being patched: as text, or taken apart while patches by
// structure follow each other.
type patched struct {
	name   string
	format Format
	text   []byte
	tree   *yaml.Node
	pairs  *properties
	// apart is true while tree or pairs say what the file holds; changed once they
	// differ from the text.
	apart, changed bool
}

// Patch applies patches to a file in their order. What found nothing to change is a
// note; where a value is there already the file's bytes stay. Invalid, naming the file, for one that is not of its format, and for values
// that the format cannot hold.
func Patch(name string, content []byte, patches []fleet.ConfigPatch) (out []byte, notes []string, err error) {
	f := &patched{name: name, format: FormatOf(name), text: content}
	for _, p := range patches {
		note, err := f.apply(p)
		if err != nil {
			return nil, nil, refuse(name, "%s", errs.MessageOf(err))
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	if err := f.together(); err != nil {
		return nil, nil, refuse(name, "patched it %s", errs.MessageOf(err))
	}
	return f.text, notes, nil
}

// outcome is what a patch by structure found.
type outcome int

const (
	absent  outcome = iota // nothing to replace
	equal                  // what it was to become
	altered                // something else, which is changed now
)

func (f *patched) apply(p fleet.ConfigPatch) (note string, err error) {
	if p.Op == fleet.PatchRegex {
		return f.replaceText(p)
	}
	if err := f.takeApart(); err != nil {
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

func (f *patched) replaceText(p fleet.ConfigPatch) (note string, err error) {
	expr, err := p.Pattern()
	if err != nil {
		return "", err
	}
	replacement, err := p.Replacement(expr)
	if err != nil {
		return "", err
	}
	if err := f.together(); err != nil {
		return "", err
	}
	if !expr.Match(f.text) {
		return fmt.Sprintf("%s has no match for %s", f.name, p.Path), nil
	}
	f.text, err = replaceAll(f.text, expr, replacement)
	return "", err
}

// maxMatches bounds how often a REGEX replaces something in a file: the matches of an
// expression with many groups need much more memory than the file.
const maxMatches = 100_000

// replaceAll is expr.ReplaceAll that stops when the text becomes too large.
func replaceAll(text []byte, expr *regexp.Regexp, replacement fleet.Replacement) ([]byte, error) {
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
			if part.Group == fleet.NoGroup {
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

func (f *patched) takeApart() (err error) {
	if f.apart {
		return nil
	}
	if f.format == FormatProperties {
		if err := readable(f.text); err != nil {
			return err
		}
		f.pairs = readProperties(f.text)
	} else {
		f.tree, err = read(f.format, f.text)
	}
	f.apart = err == nil
	return err
}

// together makes text of what was taken apart, if it was changed.
func (f *patched) together() (err error) {
	switch {
	case !f.changed:
	case f.pairs != nil:
		f.text = f.pairs.bytes()
	default:
		f.text, err = write(f.format, f.tree)
	}
	f.apart, f.changed, f.pairs, f.tree = false, false, nil, nil
	return err
}

// patch gives a key a value. The path is the key as it is written in the file, or in quotes.
func (p *properties) patch(patch fleet.ConfigPatch) (outcome, error) {
	value, err := readJSON(patch.Value)
	if err != nil {
		return absent, err
	}
	if value == nil || value.Kind != yaml.ScalarNode || value.Tag == tagNull {
		return absent, errs.New(errs.Invalid, "%s: a property is a string, a number or true or false", patch.Path)
	}
	key := patch.Path
	if steps, err := fleet.ParsePatchPath(key); err == nil && len(steps) == 1 && !steps[0].IsIndex {
		key = steps[0].Key
	}
	i, have := p.at[key]
	switch {
	case have && p.lines[i].value == value.Value:
		return equal, nil
	case have || patch.Op == fleet.PatchSet:
		p.set(key, value.Value)
		return altered, nil
	}
	return absent, nil
}

func (f *patched) patchTree(p fleet.ConfigPatch) (outcome, error) {
	steps, err := fleet.ParsePatchPath(p.Path)
	if err != nil {
		return absent, err
	}
	value, err := readJSON(p.Value)
	if err != nil || value == nil {
		return absent, err
	}
	if f.tree != nil {
		if at, err := descend(f.tree, steps, false); err == nil && at != nil && means(at, value) {
			return equal, nil
		}
	} else if p.Op == fleet.PatchSet {
		f.tree = mapping()
	} else {
		return absent, nil
	}
	at, err := descend(f.tree, steps, p.Op == fleet.PatchSet)
	if err != nil {
		return absent, errs.New(errs.Invalid, "%s: %s", p.Path, errs.MessageOf(err))
	}
	if at == nil {
		return absent, nil
	}
	put(at, value)
	return altered, nil
}

// put gives a node another value; the comments stay.
func put(at, value *yaml.Node) {
	head, line, foot, style := at.HeadComment, at.LineComment, at.FootComment, yaml.Style(0)
	if quotes := yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle; value.Tag == tagString {
		style = at.Style & quotes
	}
	*at = *value
	at.HeadComment, at.LineComment, at.FootComment, at.Style = head, line, foot, style
}

// descend is the node a path leads to; nil when it does not and make is false. With
// make, what is missing is made, and a value that is null gives way.
func descend(n *yaml.Node, steps []fleet.PatchStep, create bool) (*yaml.Node, error) {
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
				return nil, nil //nolint:nilnil // it is not there
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
		return nil, errs.New(errs.Invalid, "[%d] is asked of what is no list", i)
	case i < len(n.Content):
		return n.Content[i], nil
	case i > len(n.Content):
		return nil, errs.New(errs.Invalid, "[%d] would leave a gap: the list has %d", i, len(n.Content))
	case !create:
		return nil, nil //nolint:nilnil // it is not there
	}
	n.Content = append(n.Content, scalar(tagNull, "null"))
	return n.Content[i], nil
}

// member is a mapping's value; a key is also found by what it reads like, as 1 and true.
func member(n *yaml.Node, key string, create bool) (*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, errs.New(errs.Invalid, "%s is asked of what is no mapping", strconv.Quote(key))
	}
	if i := find(n, identity(scalar(tagString, key))); i >= 0 {
		return n.Content[i], nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == yaml.ScalarNode && k.Value == key {
			return n.Content[i+1], nil
		}
	}
	if !create {
		return nil, nil //nolint:nilnil // it is not there
	}
	made := scalar(tagNull, "null")
	n.Content = append(n.Content, scalar(tagString, key), made)
	return made, nil
}

// withValues is a patch with the placeholders in its strings replaced.
func withValues(p fleet.ConfigPatch, values map[string]string) (fleet.ConfigPatch, []string, error) {
	if !bytes.Contains(p.Value, []byte("%")) {
		return p, nil, nil
	}
	value, err := readJSON(p.Value)
	if err != nil || value == nil {
		return p, nil, err
	}
	if p.Op == fleet.PatchRegex {
		return regexWithValues(p, values)
	}
	unknown := fill(value, values)
	out, err := writeJSON(value)
	p.Value = []byte(strings.TrimSuffix(string(out), "\n"))
	return p, unknown, err
}

// regexWithValues replaces the placeholders in the text of a REGEX patch. The values are
// text as well: a dollar sign or a backslash in them has no meaning.
func regexWithValues(p fleet.ConfigPatch, values map[string]string) (out fleet.ConfigPatch, unknown []string, err error) {
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
