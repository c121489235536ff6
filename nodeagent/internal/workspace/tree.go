package workspace

import (
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// tree is what the layers come to: the entries by path, and the directories above them.
type tree struct {
	files map[string]fleet.ManifestEntry
	dirs  map[string]bool
	// parts are what each layer brings of a file that is merged, the last being the
	// entry itself.
	parts map[string][]part
	// layers are what they were, in the plan's order.
	layers []fleet.Manifest
}

// left is what other layers have left of one: that is all it takes to build of it.
func (t *tree) left(m fleet.Manifest) fleet.Manifest {
	var out fleet.Manifest
	for _, e := range m.Entries {
		merged := slices.ContainsFunc(t.parts[e.Path], func(p part) bool { return p.entry.SHA256 == e.SHA256 })
		if merged || t.files[e.Path].SHA256 == e.SHA256 {
			out.Entries = append(out.Entries, e)
		}
	}
	return out
}

// add lays an entry over what is there. A file in the way of a directory gives
// way, and a directory in the way of a file as well.
func (t *tree) add(e fleet.ManifestEntry) error {
	if !fleet.SafePath(e.Path) {
		return errs.New(errs.Invalid, "%q is not a path inside the directory", e.Path)
	}
	for parent := range parents(e.Path) {
		if have, ok := t.files[parent]; ok && have.Kind != fleet.FileDir {
			t.remove(parent)
		}
		t.dirs[parent] = true
	}
	if e.Kind != fleet.FileDir && t.dirs[e.Path] {
		t.removeBelow(e.Path)
	}
	if e.Kind == fleet.FileDir {
		t.dirs[e.Path] = true
	}
	if e.Kind != fleet.FileRegular {
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

// sorted lists the paths of some kinds in order.
func (t *tree) sorted(kinds ...fleet.FileKind) []string {
	var paths []string
	for p, e := range t.files {
		if slices.Contains(kinds, e.Kind) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// entries are those of all layers together, with every part of what is merged.
func (t *tree) entries() []fleet.ManifestEntry {
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
