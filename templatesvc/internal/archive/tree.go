package archive

import (
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/casefold"
)

// maxHops is the maximum number of links in the resolution of a path, as in Linux.
const maxHops = 40

// tree is the file tree that the entries of an archive form.
type tree struct {
	most  int // limit of files and directories, including implied directories
	nodes map[string]node
	folds map[string]string // case-folded path to the path that uses it
}

type node struct {
	kind   content.FileKind
	size   int64
	target string
}

func newTree(most int) *tree {
	return &tree{most: most, nodes: map[string]node{}, folds: map[string]string{}}
}

// add adds an entry. It refuses duplicates and entries below something that is not a
// directory. It sets the size of a hard link to that of its target.
func (t *tree) add(e *Entry) error {
	for i, c := range e.Path {
		if c != '/' {
			continue
		}
		if err := t.parent(e.Path[:i], e.Path); err != nil {
			return err
		}
	}
	if was, ok := t.nodes[e.Path]; ok {
		if was.kind == content.FileDir && e.Kind == content.FileDir {
			return nil
		}
		return errs.New(errs.Malformed, "%s is in the archive twice: pack it again", quoted(e.Path))
	}
	if err := t.checkFold(e.Path); err != nil {
		return err
	}
	n := node{kind: e.Kind, size: e.Size, target: e.Target}
	if e.Same != "" {
		first, err := t.same(e)
		if err != nil {
			return err
		}
		e.Size, n.size = first.size, first.size
	}
	if e.Kind == content.FileSymlink {
		if err := checkTarget(e); err != nil {
			return err
		}
	}
	t.nodes[e.Path] = n
	return nil
}

// parent makes sure that dir, a parent of the path of, is a directory.
func (t *tree) parent(dir, of string) error {
	was, ok := t.nodes[dir]
	switch {
	case !ok:
		if err := t.checkFold(dir); err != nil {
			return err
		}
		t.nodes[dir] = node{kind: content.FileDir}
	case was.kind == content.FileSymlink:
		return errs.New(errs.Malformed, "%s lies below the link %s: pack what the link leads to under its own path", quoted(of), quoted(dir))
	case was.kind != content.FileDir:
		return errs.New(errs.Malformed, "%s is both a file and a directory: pack it again", quoted(dir))
	}
	return nil
}

func (t *tree) checkFold(p string) error {
	key := casefold.Key(p)
	if other, ok := t.folds[key]; ok && other != p {
		return casefold.Same(errs.Malformed, other, p)
	}
	if len(t.folds) >= t.most {
		return errs.New(errs.TooLarge, "the archive has more than %d files and directories: split it", t.most)
	}
	t.folds[key] = p
	return nil
}

// same returns the file that a hard link refers to.
func (t *tree) same(e *Entry) (node, error) {
	to, err := clean(e.Same)
	if err != nil {
		return node{}, errs.New(errs.Malformed, "the hard link %s leads out of the archive, to %s: pack it with --hard-dereference", quoted(e.Path), quoted(e.Same))
	}
	first, ok := t.nodes[to]
	if !ok || first.kind != content.FileRegular {
		return node{}, errs.New(errs.Malformed, "the hard link %s leads to %s, which is no file before it in the archive: pack it with --hard-dereference", quoted(e.Path), quoted(e.Same))
	}
	e.Same = to
	return first, nil
}

// checkTarget refuses link targets that are always wrong, such as absolute ones.
func checkTarget(e *Entry) error {
	probe := strings.ReplaceAll(e.Target, "..", "__") // checkLinks checks .. once all links are known
	if e.Target != "" && !strings.HasPrefix(e.Target, "/") && len(e.Target) <= maxPath {
		if _, err := clean(probe); err == nil {
			return nil
		}
	}
	return leadsOut(e.Path, e.Target)
}

func leadsOut(p, target string) error {
	return errs.New(errs.Malformed, "the link %s leads out of the template, to %s: link relatively to a file inside", quoted(p), quoted(target))
}

// checkLinks resolves every link like a kernel.
func (t *tree) checkLinks() error {
	var links []string
	for p, n := range t.nodes {
		if n.kind == content.FileSymlink {
			links = append(links, p)
		}
	}
	slices.Sort(links) // so that the same archive always gives the same error
	for _, p := range links {
		if err := t.follow(p); err != nil {
			return err
		}
	}
	return nil
}

// follow resolves a link and refuses a path that leaves the root. A missing name counts as
// a directory, because it may be created later.
func (t *tree) follow(p string) error {
	at := path.Dir(p)
	rest := strings.Split(t.nodes[p].target, "/")
	for hops := 0; len(rest) > 0; {
		segment := rest[0]
		rest = rest[1:]
		switch segment {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return leadsOut(p, t.nodes[p].target)
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, segment)
		n, ok := t.nodes[next]
		if !ok || n.kind != content.FileSymlink {
			at = next
			continue
		}
		if hops++; hops > maxHops {
			return errs.New(errs.Malformed, "the link %s leads in a circle or through more than %d links: leave it out", quoted(p), maxHops)
		}
		rest = append(strings.Split(n.target, "/"), rest...)
	}
	return nil
}
