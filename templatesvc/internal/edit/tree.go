package edit

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Tree is the file tree of a template, for reading and editing. It is not safe for
// concurrent use.
type Tree struct {
	rest    content.Manifest // the manifest without its entries
	entries map[string]content.ManifestEntry
	// inside counts the direct entries of each directory.
	inside map[string]int
}

// Of returns the tree of a manifest. Edits do not change the manifest.
func Of(m content.Manifest) *Tree {
	t := &Tree{rest: m, entries: make(map[string]content.ManifestEntry, len(m.Entries)), inside: map[string]int{}}
	t.rest.Entries = nil
	for _, e := range m.Entries {
		t.add(e)
	}
	return t
}

// Manifest returns the current tree as a manifest, sorted by path.
func (t *Tree) Manifest() content.Manifest {
	m := t.rest
	m.Entries = make([]content.ManifestEntry, 0, len(t.entries))
	for _, p := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[p]
		if e.Kind == content.FileDir && e.Mode == dirMode && t.inside[p] > 0 {
			continue // implied by its content
		}
		m.Entries = append(m.Entries, e)
	}
	return m
}

// Define replaces the variable definitions.
func (t *Tree) Define(variables []content.Variable) { t.rest.Variables = variables }

// add adds or replaces an entry, and adds its parent directories.
func (t *Tree) add(e content.ManifestEntry) {
	if _, there := t.entries[e.Path]; !there {
		t.inside[above(e.Path)]++
	}
	t.entries[e.Path] = e
	for dir := range parents(e.Path) {
		if _, there := t.entries[dir]; there {
			return
		}
		t.entries[dir] = content.ManifestEntry{Path: dir, Kind: content.FileDir, Mode: dirMode}
		t.inside[above(dir)]++
	}
}

// remove removes one entry; its directory stays.
func (t *Tree) remove(p string) {
	if _, there := t.entries[p]; there {
		delete(t.entries, p)
		t.inside[above(p)]--
	}
}

// above returns the directory of a path, "" for the template itself.
func above(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// Below returns the paths of a directory and everything inside it, sorted.
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

// maxHops is the maximum number of links on the way to a file.
const maxHops = 40

// Find returns the entry at a clean path and follows links on the way; "" is the template
// itself, a directory. It returns NotFound when nothing is there or a link leads nowhere.
func (t *Tree) Find(p string) (content.ManifestEntry, error) {
	at, rest := "", p
	for hops := 0; rest != ""; {
		name, after, _ := strings.Cut(rest, "/")
		next := path.Join(at, name)
		e, there := t.entries[next]
		switch {
		case name == "..":
			if at == "" {
				return content.ManifestEntry{}, missing(p)
			}
			at, rest = above(at), after
		case name == "." || name == "":
			rest = after
		case !there:
			return content.ManifestEntry{}, missing(p)
		case e.Kind == content.FileSymlink:
			if hops++; hops > maxHops {
				return content.ManifestEntry{}, missing(p)
			}
			rest = strings.TrimSuffix(e.Target+"/"+after, "/")
		case after != "" && e.Kind != content.FileDir:
			return content.ManifestEntry{}, missing(p)
		default:
			at, rest = next, after
		}
	}
	if at == "" {
		return content.ManifestEntry{Kind: content.FileDir, Mode: dirMode}, nil
	}
	return t.entries[at], nil
}

func missing(p string) error {
	return errs.New(errs.NotFound, "there is no file %s: list those of its directory", p)
}

// File returns the regular file at a path from a caller. It returns Malformed for a
// directory or an invalid path, and NotFound when nothing is there.
func (t *Tree) File(p string) (content.ManifestEntry, error) {
	p, err := named(p)
	if err != nil {
		return content.ManifestEntry{}, err
	}
	e, err := t.Find(p)
	if err == nil && !regular(e) {
		return e, &errs.Error{Kind: errs.Malformed, Field: "path", Message: "names a directory, not a file: " + p}
	}
	return e, err
}

// Dir returns the path of the directory that a caller's path leads to; "" is the template
// itself. It returns Malformed for a file or an invalid path, and NotFound when nothing is
// there.
func (t *Tree) Dir(p string) (string, error) {
	p, err := Clean(p)
	if err != nil {
		return "", err
	}
	d, err := t.Find(p)
	if err == nil && d.Kind != content.FileDir {
		err = &errs.Error{Kind: errs.Malformed, Field: "path", Message: "names a file, not a directory: " + p}
	}
	return d.Path, err
}

// List returns the direct entries of a directory, sorted. It returns the errors of Dir.
func (t *Tree) List(dir string) ([]content.ManifestEntry, error) {
	dir, err := t.Dir(dir)
	if err != nil {
		return nil, err
	}
	var out []content.ManifestEntry
	for p, e := range t.entries {
		if above(p) == dir {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b content.ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}
