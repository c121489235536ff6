package workspace

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// maxNotes limits the number of notes per directory.
const maxNotes = 8

// textEditor applies the rules to text files and collects notes for the operator. It is safe
// for concurrent use.
type textEditor struct {
	rules render.Rules

	mu sync.Mutex
	// unknown maps an unknown placeholder to the first file that has it.
	unknown map[string]string
	// other are the other notes.
	other []string
}

func newTextEditor(rules render.Rules) *textEditor {
	return &textEditor{rules: rules, unknown: map[string]string{}}
}

// edit applies the rules to a file's text. changed is false if the text stays as it is.
// Failures have the reason ConfigPatch.
func (t *textEditor) edit(rules render.Rules, name string, content []byte) (out []byte, changed bool, err error) {
	e, err := rules.Edit(name, content)
	if err != nil {
		return nil, false, patchFailure(err)
	}
	t.note(name, e.Unknown, e.Notes)
	return e.Content, e.Changed, nil
}

func patchFailure(err error) error {
	return &Failure{Reason: fleet.ReasonConfigPatch, Message: errs.MessageOf(err)}
}

func (t *textEditor) noteSkipped(name, cause string) {
	t.note(name, nil, []string{fmt.Sprintf("%s was not changed: %s", name, cause)})
}

func (t *textEditor) note(name string, unknown, other []string) {
	if len(unknown)+len(other) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.other = append(t.other, other...)
	for _, u := range unknown {
		if first, ok := t.unknown[u]; !ok || name < first {
			t.unknown[u] = name
		}
	}
}

// notes returns the sorted notes.
func (t *textEditor) notes() []string {
	notes := slices.Clone(t.other)
	for placeholder, where := range t.unknown {
		notes = append(notes, render.UnknownNote(placeholder, where))
	}
	slices.Sort(notes)
	notes = slices.Compact(notes)
	if len(notes) > maxNotes {
		more := len(notes) - maxNotes
		notes = append(notes[:maxNotes], fmt.Sprintf("and %d more", more))
	}
	return notes
}

// part is a template's version of a file that is merged.
type part struct {
	template string
	entry    content.ManifestEntry
}

// generated reports whether a file's text is computed, and not just copied.
func (a *applier) generated(p string) bool {
	switch {
	case len(a.tree.parts[p]) > 1 && a.partsSize(p) <= render.MaxStructured:
		return true
	case !a.text.rules.Edits(p):
		return false
	case a.tree.files[p].Size > render.MaxText:
		a.text.noteSkipped(p, "too large")
		return false
	}
	return true
}

// unmergedNotes names the files that are too large to be merged.
func (a *applier) unmergedNotes() []string {
	var notes []string
	for _, p := range slices.Sorted(maps.Keys(a.tree.parts)) {
		if len(a.tree.parts[p]) > 1 && a.partsSize(p) > render.MaxStructured {
			notes = append(notes, fmt.Sprintf("%s was copied from the last layer: it is too large to be merged", p))
		}
	}
	return notes
}

// partsSize returns the size of the largest part of a merged file, in bytes.
func (a *applier) partsSize(p string) (largest int64) {
	for _, part := range a.tree.parts[p] {
		largest = max(largest, part.entry.Size)
	}
	return largest
}

// writeText writes a file that is merged or edited.
func (a *applier) writeText(ctx context.Context, into *os.File, p string) error {
	out, err := a.mergedText(ctx, p)
	if err != nil {
		return err
	}
	mode := fs.FileMode(a.tree.files[p].Mode & 0o777)
	out, _, err = a.edit(a.text.rules, p, out, mode)
	if err != nil {
		return err
	}
	return a.write(into, p, body{text: out, generated: true, mode: a.mode(p, mode)})
}

// mergedText returns the text of a file, merged from its parts if it has several.
func (a *applier) mergedText(ctx context.Context, p string) ([]byte, error) {
	parts := a.tree.parts[p]
	if len(parts) < 2 || a.partsSize(p) > render.MaxStructured { // unmergedNotes reports it
		return a.read(ctx, a.tree.files[p])
	}
	layers := make([]render.Layer, 0, len(parts))
	for _, part := range parts {
		content, err := a.read(ctx, part.entry)
		if err != nil {
			return nil, err
		}
		layers = append(layers, render.Layer{Template: part.template, Content: content})
	}
	out, err := render.Merge(p, layers)
	if err != nil {
		return nil, patchFailure(err)
	}
	return out, nil
}

// read reads an entry's content.
func (a *applier) read(ctx context.Context, e content.ManifestEntry) ([]byte, error) {
	blob, err := a.builder.cache.File(ctx, e)
	if err != nil {
		return nil, fetchFailure(ctx, e.Path, err)
	}
	return os.ReadFile(blob)
}

// editKept replaces placeholders in an existing file of a static directory, and patches it
// unless it is protected.
func (a *applier) editKept(p string) error {
	rules := a.text.rules
	if a.protected(p) {
		rules = rules.WithoutPatches()
	}
	if !rules.Edits(p) {
		return nil
	}
	src, fi, err := a.openKept(p)
	if err != nil {
		return err
	}
	if src == nil {
		a.text.noteSkipped(p, "not a file")
		return nil
	}
	defer src.Close()
	if fi.Size() > render.MaxText {
		a.text.noteSkipped(p, "too large")
		return nil
	}
	out, err := io.ReadAll(io.LimitReader(src, render.MaxText+1))
	if err != nil {
		return err
	}
	out, changed, err := a.edit(rules, p, out, fi.Mode().Perm())
	if err != nil || !changed {
		return err
	}
	return a.replace(p, body{text: out, generated: true, mode: a.mode(p, fi.Mode().Perm())})
}

// editOtherFiles edits the listed files that no layer has: files of the server, and files that
// patches create.
func (a *applier) editOtherFiles(context.Context) error {
	for _, p := range a.text.rules.Named() {
		if _, brought := a.tree.files[p]; brought {
			continue
		}
		_, err := a.root.Lstat(p)
		switch {
		case err == nil:
			err = a.editKept(p)
		case a.text.rules.Creates(p):
			err = a.createFromPatches(p)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// createFromPatches creates a file that only patches describe.
func (a *applier) createFromPatches(p string) error {
	out, _, err := a.edit(a.text.rules, p, nil, 0o644)
	if err != nil {
		return err
	}
	if err := a.root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	return a.replace(p, body{text: out, generated: true, mode: 0o644})
}

// missingNotes names the listed files that do not exist. It skips the default patterns of a
// group, which the operator did not list.
func (a *applier) missingNotes() []string {
	var notes []string
	look := func(pattern, of string) {
		if !a.matchesFile(pattern) {
			notes = append(notes, fmt.Sprintf("no file matches %s of %s", pattern, of))
		}
	}
	byDefault := configfile.DefaultFileModifications()
	for _, pattern := range a.text.rules.Listed {
		if !slices.Contains(byDefault, pattern) {
			look(pattern, "fileModifications")
		}
	}
	seen := map[string]bool{}
	for _, patch := range a.text.rules.Patches {
		if !seen[patch.File] {
			seen[patch.File] = true
			look(patch.File, "configPatches")
		}
	}
	return notes
}

// matchesFile reports whether a file matches a listed name or pattern.
func (a *applier) matchesFile(pattern string) bool {
	for p, e := range a.tree.files {
		if e.Kind == content.FileRegular && render.Glob(pattern, p) {
			return true
		}
	}
	if render.IsGlob(pattern) {
		return false
	}
	_, err := a.root.Lstat(path.Clean(pattern))
	return err == nil
}
