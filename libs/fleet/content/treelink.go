package content

import (
	"path"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	maxLinkHops  = 40      // the kernel's limit
	maxLinkSteps = 1 << 22 // for the whole tree, against exponential chains of links
)

// CheckLinks returns an Invalid error that names the link if a link leads out of the tree. It
// follows links through other links, like the kernel. A link may be dangling: missing paths count
// as plain directories. Paths must be safe.
func (m Manifest) CheckLinks() error {
	root, err := newTree(m.Entries)
	if err != nil {
		return err
	}
	return root.checkLinks(m.Entries)
}

// checkLinks follows every link among entries. n is the root of their tree.
func (n *treeNode) checkLinks(entries []ManifestEntry) error {
	w := linkWalk{root: n, steps: maxLinkSteps}
	for i := range entries {
		e := &entries[i]
		if e.Kind != FileSymlink {
			continue
		}
		if !safeTarget(e.Target) {
			return errs.New(errs.Invalid, "the link %s has the target %q, which is not a relative path", e.Path, e.Target)
		}
		at := n
		if dir := path.Dir(e.Path); dir != "." {
			for segment := range strings.SplitSeq(dir, "/") {
				at = at.children[segment]
			}
		}
		w.hops = 0
		if _, err := w.follow(e, position{node: at}, e.Target); err != nil {
			return err
		}
	}
	return nil
}

func safeTarget(target string) bool {
	return target != "" && len(target) <= MaxPathBytes && !path.IsAbs(target) && safeText(target)
}

// position is a directory in the tree, or missing levels below an existing one.
type position struct {
	node    *treeNode
	missing int
}

type linkWalk struct {
	root        *treeNode
	hops, steps int
}

// follow resolves a target from a directory and returns where it ends.
func (w *linkWalk) follow(link *ManifestEntry, at position, target string) (position, error) {
	if w.hops++; w.hops > maxLinkHops {
		return at, errs.New(errs.Invalid, "the link %s leads through more than %d links or is circular", link.Path, maxLinkHops)
	}
	for segment := range strings.SplitSeq(target, "/") {
		if w.steps--; w.steps < 0 {
			return at, errs.New(errs.Invalid, "the template's links refer to each other too often, at %s", link.Path)
		}
		var err error
		if at, err = w.step(link, at, segment); err != nil {
			return at, err
		}
	}
	return at, nil
}

func (w *linkWalk) step(link *ManifestEntry, at position, segment string) (position, error) {
	switch {
	case segment == "" || segment == ".":
		return at, nil
	case segment == "..":
		return up(link, at)
	case at.missing > 0 || at.node.children[segment] == nil:
		at.missing++
		return at, nil
	}
	next := at.node.children[segment]
	if next.entry != nil && next.entry.Kind == FileSymlink && safeTarget(next.entry.Target) {
		return w.follow(link, at, next.entry.Target)
	}
	return position{node: next}, nil
}

func up(link *ManifestEntry, at position) (position, error) {
	switch {
	case at.missing > 0:
		at.missing--
		return at, nil
	case at.node.parent == nil:
		return at, errs.New(errs.Invalid, "the link %s leads out of the template, to %q", link.Path, link.Target)
	}
	return position{node: at.node.parent}, nil
}
