package content

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// reserved reports whether a name in the root of an instance's directory is reserved for the
// agent.
func reserved(name string) bool {
	name = strings.ToLower(name)
	return name == ".orrery-lock" || name == ".orrery"
}

// SafePath reports whether p is a valid path inside a tree on every platform: relative, clean,
// slash-separated, valid UTF-8 without control characters or backslashes, at most MaxPathBytes
// long, with at most MaxDepth segments of at most MaxNameBytes.
func SafePath(p string) bool {
	if p == "" || p == "." || len(p) > MaxPathBytes || path.IsAbs(p) || path.Clean(p) != p || !safeText(p) {
		return false
	}
	depth := 0
	for segment := range strings.SplitSeq(p, "/") {
		if depth++; segment == ".." || len(segment) > MaxNameBytes || depth > MaxDepth {
			return false
		}
	}
	return true
}

// safeText reports whether JSON and terminals reproduce s unchanged.
func safeText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r == '\\' || unicode.IsControl(r) })
}

// treeNode is a node in a manifest's tree: an entry, or an implied directory.
type treeNode struct {
	parent   *treeNode
	entry    *ManifestEntry // nil for a directory implied by its content
	children map[string]*treeNode
}

func (n *treeNode) isDir() bool { return n.entry == nil || n.entry.Kind == FileDir }

// newTree builds the tree of the entries, whose paths must be safe. The error is Invalid if two
// entries have the same path, or an entry is below a file or link.
func newTree(entries []ManifestEntry) (*treeNode, error) {
	root := &treeNode{}
	for i := range entries {
		if err := root.insert(&entries[i]); err != nil {
			return nil, err
		}
	}
	return root, nil
}

func (n *treeNode) insert(e *ManifestEntry) error {
	for segment := range strings.SplitSeq(e.Path, "/") {
		if !n.isDir() {
			return errs.New(errs.Invalid, "%s is below %s, which is not a directory", e.Path, n.entry.Path)
		}
		n = n.child(segment)
	}
	switch {
	case n.entry != nil:
		return errs.New(errs.Invalid, "%q is in the template twice", e.Path)
	case e.Kind != FileDir && len(n.children) > 0:
		return errs.New(errs.Invalid, "%s is not a directory, but there are entries below it", e.Path)
	}
	n.entry = e
	return nil
}

// child returns the child of that name and creates it if needed.
func (n *treeNode) child(name string) *treeNode {
	if c := n.children[name]; c != nil {
		return c
	}
	if n.children == nil {
		n.children = map[string]*treeNode{}
	}
	c := &treeNode{parent: n}
	n.children[name] = c
	return c
}

// checkCase rejects names in one directory that are equal on a case-insensitive file system.
func (n *treeNode) checkCase(at string) error {
	folded := make(map[string]string, len(n.children))
	for name, c := range n.children {
		key := foldName(name)
		if other, ok := folded[key]; ok {
			return errs.New(errs.Invalid, "%q and %q differ only in case: rename one", path.Join(at, min(name, other)), path.Join(at, max(name, other)))
		}
		folded[key] = name
		if err := c.checkCase(path.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}

// foldName maps names that differ only in case to the same string.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}
