package render

import (
	"bytes"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Rules are what is done to the files of one instance. The zero value does nothing.
type Rules struct {
	// Merge are globs of files that are merged by layer.
	Merge []string
	// Listed are globs of files whose placeholders are replaced by Values.
	Listed []string
	Values map[string]string
	// Patches are applied after that, in their order.
	Patches []fleet.ConfigPatch
}

// RulesOf are the rules of a plan, with the placeholder values of the instance.
func RulesOf(p fleet.Plan, values map[string]string) Rules {
	return Rules{Merge: p.Merge, Listed: p.FileModifications, Patches: p.Patches, Values: values}
}

// Merges reports whether a file is merged when several layers bring it. One whose
// structure is not known never is.
func (r Rules) Merges(name string) bool {
	return FormatOf(name) != FormatNone && AnyGlob(r.Merge, name)
}

// Edits reports whether a file's text is changed for the instance.
func (r Rules) Edits(name string) bool {
	return AnyGlob(r.Listed, name) || slices.ContainsFunc(r.Patches, func(p fleet.ConfigPatch) bool { return Glob(p.File, name) })
}

// Kept are the rules for a file that belongs to whoever runs the server: its
// placeholders are replaced, and nothing else.
func (r Rules) Kept() Rules {
	r.Patches = nil
	return r
}

// Named lists, without repeats, the files that are named rather than matched.
func (r Rules) Named() []string {
	var out []string
	add := func(file string) {
		if name := path.Clean(file); !IsGlob(file) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, file := range r.Listed {
		add(file)
	}
	for _, p := range r.Patches {
		add(p.File)
	}
	return out
}

// Creates reports whether a file is made when there is none: a SET patch names it.
func (r Rules) Creates(name string) bool {
	return slices.ContainsFunc(r.Patches, func(p fleet.ConfigPatch) bool {
		return p.Op == fleet.PatchSet && !IsGlob(p.File) && path.Clean(p.File) == name
	})
}

// Edited is what became of a file's text.
type Edited struct {
	Content []byte
	// Changed is false when it is what it was.
	Changed bool
	// Unknown are placeholders without a value, Notes what else there is to tell.
	Unknown, Notes []string
}

// Edit replaces a file's placeholders and patches it. What is no text is left alone
// with a note, or refused as Invalid if a patch names it.
func (r Rules) Edit(name string, content []byte) (Edited, error) {
	e := Edited{Content: content}
	patches, err := r.patches(name, &e)
	if err != nil {
		return e, err
	}
	if alone := untextual(content); alone != "" {
		if slices.ContainsFunc(patches, func(p fleet.ConfigPatch) bool { return !IsGlob(p.File) }) {
			return e, refuse(name, "cannot be patched: it is %s", alone)
		}
		e.Notes = append(e.Notes, name+" was left alone: "+alone)
		return e, nil
	}
	if AnyGlob(r.Listed, name) {
		text, unknown := Substitute(string(content), r.Values)
		e.Content, e.Unknown = []byte(text), append(e.Unknown, unknown...)
	}
	if len(patches) > 0 {
		var notes []string
		if e.Content, notes, err = Patch(name, e.Content, patches); err != nil {
			return e, err
		}
		e.Notes = append(e.Notes, notes...)
	}
	e.Changed = !bytes.Equal(content, e.Content)
	return e, nil
}

// patches are those of a file, their placeholders replaced.
func (r Rules) patches(name string, e *Edited) ([]fleet.ConfigPatch, error) {
	var out []fleet.ConfigPatch
	for _, p := range r.Patches {
		if !Glob(p.File, name) {
			continue
		}
		p, unknown, err := withValues(p, r.Values)
		if err != nil {
			return nil, err
		}
		out, e.Unknown = append(out, p), append(e.Unknown, unknown...)
	}
	return out, nil
}

// untextual words why a content is no text; "" when it is.
func untextual(content []byte) string {
	switch {
	case len(content) > MaxText:
		return "too large"
	case bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content):
		return "not text"
	}
	return ""
}
