package fleet

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// reserved reports whether a name at the root of an instance's directory is the agent's own.
func reserved(name string) bool {
	name = strings.ToLower(name)
	return name == ".orrery-lock" || name == ".orrery"
}

// SafePath reports whether p names something inside a tree on every machine:
// relative, clean, slash-separated, valid UTF-8 without control characters or
// backslashes, and within MaxPathBytes, MaxNameBytes a segment and MaxDepth segments.
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

// safeText reports whether JSON carries s as it is and a terminal shows it as it is.
func safeText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r == '\\' || unicode.IsControl(r) })
}

// treeNode is a place in a manifest's tree: an entry, or a directory that follows from one.
type treeNode struct {
	parent   *treeNode
	entry    *ManifestEntry // nil for a directory that only follows from what is in it
	children map[string]*treeNode
}

func (n *treeNode) isDir() bool { return n.entry == nil || n.entry.Kind == FileDir }

// newTree arranges entries by their paths, which must be safe. Invalid when two
// have the same path or something lies below a file or a link.
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
			return errs.New(errs.Invalid, "%s lies below %s, which is no directory", e.Path, n.entry.Path)
		}
		n = n.child(segment)
	}
	switch {
	case n.entry != nil:
		return errs.New(errs.Invalid, "%q stands in the template twice", e.Path)
	case e.Kind != FileDir && len(n.children) > 0:
		return errs.New(errs.Invalid, "%s is no directory, yet something lies below it", e.Path)
	}
	n.entry = e
	return nil
}

// child is the place of that name below n, made if need be.
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

// checkCase refuses names in one directory that a file system without regard to
// case takes for one.
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

// foldName maps all spellings of a name that differ in case only to one.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}
