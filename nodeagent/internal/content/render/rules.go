package render

import (
	"bytes"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

// Rules describe how the files of an instance are generated. The zero value changes nothing.
type Rules struct {
	// Merge are globs of files that are merged across layers.
	Merge []string
	// Listed are globs of files in which placeholders are replaced by Values.
	Listed []string
	Values map[string]string
	// Patches are applied in order, after placeholders are replaced.
	Patches []configfile.ConfigPatch
}

// RulesOf returns the rules of a plan, with the placeholder values of the instance.
func RulesOf(p fleet.Plan, values map[string]string) Rules {
	return Rules{Merge: p.Merge, Listed: p.FileModifications, Patches: p.Patches, Values: values}
}

// Merges reports whether a file is merged if several layers have it. Its format must be known.
func (r Rules) Merges(name string) bool {
	return FormatOf(name) != FormatNone && AnyGlob(r.Merge, name)
}

// Edits reports whether the rules may change a file's text.
func (r Rules) Edits(name string) bool {
	return AnyGlob(r.Listed, name) || slices.ContainsFunc(r.Patches, func(p configfile.ConfigPatch) bool { return Glob(p.File, name) })
}

// WithoutPatches returns the rules for a protected file: only placeholders are replaced.
func (r Rules) WithoutPatches() Rules {
	r.Patches = nil
	return r
}

// Named lists the files that are named by path and not by a pattern, without duplicates.
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

// Creates reports whether a missing file is created, because a SET patch names it.
func (r Rules) Creates(name string) bool {
	return slices.ContainsFunc(r.Patches, func(p configfile.ConfigPatch) bool {
		return p.Op == configfile.PatchSet && !IsGlob(p.File) && path.Clean(p.File) == name
	})
}

// Edited is the result of Edit.
type Edited struct {
	Content []byte
	// Changed is false if the content is unchanged.
	Changed bool
	// Unknown are placeholders without a value, Notes are messages for the operator.
	Unknown, Notes []string
}

// Edit replaces a file's placeholders and patches it. It skips a file that is not text, with a
// note, but returns Invalid if a patch names that file.
func (r Rules) Edit(name string, content []byte) (Edited, error) {
	e := Edited{Content: content}
	patches, err := r.patches(name, &e)
	if err != nil {
		return e, err
	}
	if alone := notText(content); alone != "" {
		if slices.ContainsFunc(patches, func(p configfile.ConfigPatch) bool { return !IsGlob(p.File) }) {
			return e, invalidFile(name, "cannot be patched: it is %s", alone)
		}
		e.Notes = append(e.Notes, name+" was not changed: "+alone)
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

// patches returns the patches of a file with their placeholders replaced.
func (r Rules) patches(name string, e *Edited) ([]configfile.ConfigPatch, error) {
	var out []configfile.ConfigPatch
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

// notText returns why content cannot be edited as text; "" if it can.
func notText(content []byte) string {
	switch {
	case len(content) > MaxText:
		return "too large"
	case bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content):
		return "not text"
	}
	return ""
}
