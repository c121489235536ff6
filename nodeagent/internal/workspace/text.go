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
	"github.com/orreryhq/orrery/nodeagent/internal/render"
)

// maxNotes bounds what is told of one directory.
const maxNotes = 8

// text makes the text of an instance's files, and remembers what there is to tell of
// them. It is used by several copiers at once.
type text struct {
	rules render.Rules

	mu sync.Mutex
	// unknown is the first file each unknown placeholder was found in.
	unknown map[string]string
	// told is what else there is to tell.
	told []string
}

func newText(rules render.Rules) *text { return &text{rules: rules, unknown: map[string]string{}} }

// edited is a file's text as the rules make it. changed is false when it is to stay as
// it is. Failures have the reason ConfigPatch.
func (t *text) edited(rules render.Rules, name string, content []byte) (out []byte, changed bool, err error) {
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

func (t *text) leaveAlone(name, cause string) {
	t.note(name, nil, []string{fmt.Sprintf("%s was left alone: %s", name, cause)})
}

func (t *text) note(name string, unknown, told []string) {
	if len(unknown)+len(told) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = append(t.told, told...)
	for _, u := range unknown {
		if first, ok := t.unknown[u]; !ok || name < first {
			t.unknown[u] = name
		}
	}
}

// notes tells what was found, in a fixed order.
func (t *text) notes() []string {
	notes := slices.Clone(t.told)
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

// part is what one template brings of a file that is merged.
type part struct {
	template string
	entry    fleet.ManifestEntry
}

// made reports whether a file's text is made rather than copied.
func (a *application) made(p string) bool {
	switch {
	case len(a.tree.parts[p]) > 1 && a.partsSize(p) <= render.MaxStructured:
		return true
	case !a.text.rules.Edits(p):
		return false
	case a.tree.files[p].Size > render.MaxText:
		a.text.leaveAlone(p, "too large")
		return false
	}
	return true
}

// unmerged notes the files that are too large to be merged: the last layer's is taken.
func (a *application) unmerged() []string {
	var notes []string
	for _, p := range slices.Sorted(maps.Keys(a.tree.parts)) {
		if len(a.tree.parts[p]) > 1 && a.partsSize(p) > render.MaxStructured {
			notes = append(notes, fmt.Sprintf("%s was taken whole from the last layer: it is too large to be merged", p))
		}
	}
	return notes
}

// partsSize is what the largest part of a merged file holds.
func (a *application) partsSize(p string) (largest int64) {
	for _, part := range a.tree.parts[p] {
		largest = max(largest, part.entry.Size)
	}
	return largest
}

// placeText writes a file that is merged, or in which something is replaced.
func (a *application) placeText(ctx context.Context, into *os.File, p string) error {
	out, err := a.merged(ctx, p)
	if err != nil {
		return err
	}
	mode := fs.FileMode(a.tree.files[p].Mode & 0o777)
	out, _, err = a.edit(a.text.rules, p, out, mode)
	if err != nil {
		return err
	}
	return a.bring(into, p, content{text: out, made: true, mode: a.mode(p, mode)})
}

// merged is a file's content: the last layer's, or what the layers' parts come to.
func (a *application) merged(ctx context.Context, p string) ([]byte, error) {
	parts := a.tree.parts[p]
	if len(parts) < 2 || a.partsSize(p) > render.MaxStructured { // told by unmerged
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

// read reads an entry's content whole.
func (a *application) read(ctx context.Context, e fleet.ManifestEntry) ([]byte, error) {
	blob, err := a.builder.cache.File(ctx, e)
	if err != nil {
		return nil, fetchFailure(ctx, e.Path, err)
	}
	return os.ReadFile(blob)
}

// rewriteInPlace replaces placeholders in a file of a static directory that was kept,
// and patches it unless it is protected.
func (a *application) rewriteInPlace(p string) error {
	rules := a.text.rules
	if a.protected(p) {
		rules = rules.Kept()
	}
	if !rules.Edits(p) {
		return nil
	}
	src, fi, err := a.openKept(p)
	if err != nil {
		return err
	}
	if src == nil {
		a.text.leaveAlone(p, "not a file")
		return nil
	}
	defer src.Close()
	if fi.Size() > render.MaxText {
		a.text.leaveAlone(p, "too large")
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
	return a.replace(p, content{text: out, made: true, mode: a.mode(p, fi.Mode().Perm())})
}

// rewriteOthers handles named files that no layer brings: those a server wrote, and
// those that patches make.
func (a *application) rewriteOthers(context.Context) error {
	for _, p := range a.text.rules.Named() {
		if _, brought := a.tree.files[p]; brought {
			continue
		}
		_, err := a.root.Lstat(p)
		switch {
		case err == nil:
			err = a.rewriteInPlace(p)
		case a.text.rules.Creates(p):
			err = a.start(p)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start makes a file of what patches say.
func (a *application) start(p string) error {
	out, _, err := a.edit(a.text.rules, p, nil, 0o644)
	if err != nil {
		return err
	}
	if err := a.root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	return a.replace(p, content{text: out, made: true, mode: 0o644})
}

// missing notes the listed names that no file answers to. The patterns that a group has
// by default are no names that somebody listed.
func (a *application) missing() []string {
	var notes []string
	look := func(pattern, of string) {
		if !a.answers(pattern) {
			notes = append(notes, fmt.Sprintf("no file matches %s of %s", pattern, of))
		}
	}
	byDefault := fleet.DefaultFileModifications()
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

// answers reports whether a file matches a listed name.
func (a *application) answers(pattern string) bool {
	for p, e := range a.tree.files {
		if e.Kind == fleet.FileRegular && render.Glob(pattern, p) {
			return true
		}
	}
	if render.IsGlob(pattern) {
		return false
	}
	_, err := a.root.Lstat(path.Clean(pattern))
	return err == nil
}
