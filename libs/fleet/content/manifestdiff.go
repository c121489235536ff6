package content

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ChangeKind says how a path differs between two manifests.
type ChangeKind string

// The kinds of changes.
const (
	ChangeAdded   ChangeKind = "ADDED"
	ChangeRemoved ChangeKind = "REMOVED"
	ChangeContent ChangeKind = "CHANGED" // different bytes, target or kind
	ChangeMode    ChangeKind = "MODE"    // only different permission bits
)

// FileChange is one path that differs between two manifests.
type FileChange struct {
	Path   string     `json:"path"`
	Change ChangeKind `json:"change"`
	// Old and New are the entries before and after. Either may be nil.
	Old *ManifestEntry `json:"old,omitempty"`
	New *ManifestEntry `json:"new,omitempty"`
}

// Diff returns the changes from a to b, sorted by path. It is nil if the trees are equal.
func Diff(a, b Manifest) []FileChange {
	var out []FileChange
	old, next := byPath(a), byPath(b)
	for p, o := range old {
		n := next[p]
		switch {
		case n == nil:
			out = append(out, FileChange{Path: p, Change: ChangeRemoved, Old: o})
		case !sameContent(o, n):
			out = append(out, FileChange{Path: p, Change: ChangeContent, Old: o, New: n})
		case o.Mode != n.Mode:
			out = append(out, FileChange{Path: p, Change: ChangeMode, Old: o, New: n})
		}
	}
	for p, n := range next {
		if old[p] == nil {
			out = append(out, FileChange{Path: p, Change: ChangeAdded, New: n})
		}
	}
	slices.SortFunc(out, func(x, y FileChange) int { return cmp.Compare(x.Path, y.Path) })
	return out
}

func byPath(m Manifest) map[string]*ManifestEntry {
	out := make(map[string]*ManifestEntry, len(m.Entries))
	for i := range m.Entries {
		out[m.Entries[i].Path] = &m.Entries[i]
	}
	return out
}

// sameContent compares everything except the mode, and the chunks, which follow from the bytes.
func sameContent(a, b *ManifestEntry) bool {
	return a.Kind == b.Kind && a.SHA256 == b.SHA256 && a.Target == b.Target && a.Size == b.Size
}

// Merge3 merges two changes of the tree base. If both changed the same path differently, theirs
// wins and the path is listed in conflicts. An entry of ours is also a conflict if theirs has a
// directory at its path, or a file above it. The entries and conflicts are sorted by path.
func Merge3(base, ours, theirs Manifest) (m Manifest, conflicts []string) {
	b, o, t := byPath(base), byPath(ours), byPath(theirs)
	picked, fought := merge3(b, o, t, func(x, y *ManifestEntry) bool { return sameContent(x, y) && x.Mode == y.Mode })
	fought = append(fought, dropClashes(picked, t)...)
	slices.Sort(fought)
	for _, p := range slices.Sorted(maps.Keys(picked)) {
		m.Entries = append(m.Entries, *picked[p])
	}
	m.Variables = mergeVariables(base.Variables, ours.Variables, theirs.Variables)
	return m, slices.Compact(fought)
}

// merge3 picks for each key the side that changed it, and theirs if both did.
func merge3[T any](base, ours, theirs map[string]*T, same func(x, y *T) bool) (picked map[string]*T, fought []string) {
	equal := func(x, y *T) bool { return x == nil && y == nil || x != nil && y != nil && same(x, y) }
	picked = make(map[string]*T, len(theirs))
	keys := maps.Clone(theirs)
	maps.Copy(keys, ours) // both sides removed what only base has
	for k := range keys {
		pick := theirs[k]
		switch {
		case equal(theirs[k], base[k]):
			pick = ours[k]
		case !equal(ours[k], base[k]) && !equal(ours[k], theirs[k]):
			fought = append(fought, k)
		}
		if pick != nil {
			picked[k] = pick
		}
	}
	return picked, fought
}

// dropClashes removes from picked what conflicts with theirs: an entry below a file or link of
// theirs, and a file or link above an entry of theirs.
func dropClashes(picked, theirs map[string]*ManifestEntry) (dropped []string) {
	for _, p := range slices.Sorted(maps.Keys(picked)) {
		for above := range ancestors(p) {
			top := picked[above]
			if top == nil || top.Kind == FileDir {
				continue
			}
			lose := p
			if theirs[above] != top { // the entry above is ours
				lose = above
			}
			delete(picked, lose)
			dropped = append(dropped, lose)
			if lose == p {
				break
			}
		}
	}
	return dropped
}

// ancestors yields the directories above a path, without the root.
func ancestors(p string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i := 0; i < len(p); i++ {
			if p[i] == '/' && !yield(strings.Clone(p[:i])) {
				return
			}
		}
	}
}

// mergeVariables merges definitions like Merge3 merges files, with theirs first. If both changed a
// definition, theirs wins, and that is not reported as a conflict.
func mergeVariables(base, ours, theirs []Variable) (out []Variable) {
	picked, _ := merge3(byKey(base), byKey(ours), byKey(theirs), func(x, y *Variable) bool { return reflect.DeepEqual(x, y) })
	for _, v := range slices.Concat(theirs, ours) {
		if p := picked[v.Key]; p != nil {
			out = append(out, *p)
			delete(picked, v.Key)
		}
	}
	return out
}

func byKey(vs []Variable) map[string]*Variable {
	out := make(map[string]*Variable, len(vs))
	for i := range vs {
		out[vs[i].Key] = &vs[i]
	}
	return out
}
