package workspace

import (
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// tree is the result of merging layers: the entries by path, and all parent directories.
type tree struct {
	files map[string]content.ManifestEntry
	dirs  map[string]bool
	// parts are the versions of a file that is merged, one per layer. The last one is also
	// in files.
	parts map[string][]part
	// layers are the manifests, in the plan's order.
	layers []content.Manifest
}

// effective returns the entries of a layer that no later layer replaces.
func (t *tree) effective(m content.Manifest) content.Manifest {
	var out content.Manifest
	for _, e := range m.Entries {
		merged := slices.ContainsFunc(t.parts[e.Path], func(p part) bool { return p.entry.SHA256 == e.SHA256 })
		if merged || t.files[e.Path].SHA256 == e.SHA256 {
			out.Entries = append(out.Entries, e)
		}
	}
	return out
}

// add adds an entry of a later layer. It replaces a file where it needs a directory, and
// a directory where it has a file.
func (t *tree) add(e content.ManifestEntry) error {
	if !content.SafePath(e.Path) {
		return errs.New(errs.Invalid, "%q is not a path inside the directory", e.Path)
	}
	for parent := range parents(e.Path) {
		if have, ok := t.files[parent]; ok && have.Kind != content.FileDir {
			t.remove(parent)
		}
		t.dirs[parent] = true
	}
	if e.Kind != content.FileDir && t.dirs[e.Path] {
		t.removeBelow(e.Path)
	}
	if e.Kind == content.FileDir {
		t.dirs[e.Path] = true
	}
	if e.Kind != content.FileRegular {
		delete(t.parts, e.Path)
	}
	t.files[e.Path] = e
	return nil
}

func (t *tree) remove(p string) {
	delete(t.files, p)
	delete(t.parts, p)
}

func (t *tree) removeBelow(dir string) {
	for p := range t.files {
		if strings.HasPrefix(p, dir+"/") {
			t.remove(p)
		}
	}
	for p := range t.dirs {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			delete(t.dirs, p)
		}
	}
}

// sorted returns the sorted paths of the entries of some kinds.
func (t *tree) sorted(kinds ...content.FileKind) []string {
	var paths []string
	for p, e := range t.files {
		if slices.Contains(kinds, e.Kind) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// entries returns all entries, with every part of merged files.
func (t *tree) entries() []content.ManifestEntry {
	all := slices.Collect(maps.Values(t.files))
	for _, parts := range t.parts {
		for _, p := range parts {
			all = append(all, p.entry)
		}
	}
	return all
}

func digests(layers []fleet.PlanLayer) []string {
	all := make([]string, 0, len(layers))
	for _, l := range layers {
		all = append(all, l.Digest)
	}
	return all
}
