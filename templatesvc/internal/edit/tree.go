package edit

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Tree is a template's files while they are looked at or edited. It is not safe for
// concurrent use.
type Tree struct {
	rest    fleet.Manifest // what of the manifest is no entry
	entries map[string]fleet.ManifestEntry
	// inside counts what lies directly in a directory.
	inside map[string]int
}

// Of is the tree of a manifest, which it leaves as it is.
func Of(m fleet.Manifest) *Tree {
	t := &Tree{rest: m, entries: make(map[string]fleet.ManifestEntry, len(m.Entries)), inside: map[string]int{}}
	t.rest.Entries = nil
	for _, e := range m.Entries {
		t.add(e)
	}
	return t
}

// Manifest is the tree as it is now, entries in order of path.
func (t *Tree) Manifest() fleet.Manifest {
	m := t.rest
	m.Entries = make([]fleet.ManifestEntry, 0, len(t.entries))
	for _, p := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[p]
		if e.Kind == fleet.FileDir && e.Mode == dirMode && t.inside[p] > 0 {
			continue // it follows from what lies in it
		}
		m.Entries = append(m.Entries, e)
	}
	return m
}

// Define replaces the definitions of the tree's variables.
func (t *Tree) Define(variables []fleet.Variable) { t.rest.Variables = variables }

// add puts an entry in, replacing what stands at its path, and the directories it lies in.
func (t *Tree) add(e fleet.ManifestEntry) {
	if _, there := t.entries[e.Path]; !there {
		t.inside[above(e.Path)]++
	}
	t.entries[e.Path] = e
	for dir := range parents(e.Path) {
		if _, there := t.entries[dir]; there {
			return
		}
		t.entries[dir] = fleet.ManifestEntry{Path: dir, Kind: fleet.FileDir, Mode: dirMode}
		t.inside[above(dir)]++
	}
}

// remove takes one entry out; the directory it lay in stays.
func (t *Tree) remove(p string) {
	if _, there := t.entries[p]; there {
		delete(t.entries, p)
		t.inside[above(p)]--
	}
}

// above is the directory a path lies in, "" for the template itself.
func above(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// Below are the paths of a directory and all that lies in it, in order.
func (t *Tree) Below(dir string) []string {
	var out []string
	for p := range t.entries {
		if within(p, dir) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// maxHops bounds the links followed to one file.
const maxHops = 40

// Find is what stands at a clean path, links on the way followed; "" is the template
// itself, a directory. NotFound when nothing does, or a link leads nowhere.
func (t *Tree) Find(p string) (fleet.ManifestEntry, error) {
	at, rest := "", p
	for hops := 0; rest != ""; {
		name, after, _ := strings.Cut(rest, "/")
		next := path.Join(at, name)
		e, there := t.entries[next]
		switch {
		case name == "..":
			if at == "" {
				return fleet.ManifestEntry{}, missing(p)
			}
			at, rest = above(at), after
		case name == "." || name == "":
			rest = after
		case !there:
			return fleet.ManifestEntry{}, missing(p)
		case e.Kind == fleet.FileSymlink:
			if hops++; hops > maxHops {
				return fleet.ManifestEntry{}, missing(p)
			}
			rest = strings.TrimSuffix(e.Target+"/"+after, "/")
		case after != "" && e.Kind != fleet.FileDir:
			return fleet.ManifestEntry{}, missing(p)
		default:
			at, rest = next, after
		}
	}
	if at == "" {
		return fleet.ManifestEntry{Kind: fleet.FileDir, Mode: dirMode}, nil
	}
	return t.entries[at], nil
}

func missing(p string) error {
	return errs.New(errs.NotFound, "there is no file %s: list those of its directory", p)
}

// File is the regular file at a path as a caller wrote it. Malformed when that is a
// directory or no path, NotFound when nothing is there.
func (t *Tree) File(p string) (fleet.ManifestEntry, error) {
	p, err := named(p)
	if err != nil {
		return fleet.ManifestEntry{}, err
	}
	e, err := t.Find(p)
	if err == nil && !regular(e) {
		return e, &errs.Error{Kind: errs.Malformed, Field: "path", Message: "names a directory, not a file: " + p}
	}
	return e, err
}

// Dir is where the directory lies that a path leads to, as a caller wrote it: "" is the
// template itself. Errors as of File.
func (t *Tree) Dir(p string) (string, error) {
	p, err := Clean(p)
	if err != nil {
		return "", err
	}
	d, err := t.Find(p)
	if err == nil && d.Kind != fleet.FileDir {
		err = &errs.Error{Kind: errs.Malformed, Field: "path", Message: "names a file, not a directory: " + p}
	}
	return d.Path, err
}

// List is what lies directly in a directory, in order of name. Errors as of File.
func (t *Tree) List(dir string) ([]fleet.ManifestEntry, error) {
	dir, err := t.Dir(dir)
	if err != nil {
		return nil, err
	}
	var out []fleet.ManifestEntry
	for p, e := range t.entries {
		if above(p) == dir {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b fleet.ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}
