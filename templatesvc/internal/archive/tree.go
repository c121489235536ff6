package archive

import (
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/spelling"
)

// maxHops bounds how many links one path may lead through, as kernels do.
const maxHops = 40

// tree is what an archive's entries make together.
type tree struct {
	most  int // directories that only follow from paths count too
	nodes map[string]node
	folds map[string]string // folded path to the path that stands there
}

type node struct {
	kind   fleet.FileKind
	size   int64
	target string
}

func newTree(most int) *tree {
	return &tree{most: most, nodes: map[string]node{}, folds: map[string]string{}}
}

// add puts an entry into its place: nothing stands there twice or below what is
// no directory. It completes a hard link by the size of what it names.
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
		if was.kind == fleet.FileDir && e.Kind == fleet.FileDir {
			return nil
		}
		return errs.New(errs.Malformed, "%s stands in the archive twice: pack it anew", quoted(e.Path))
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
	if e.Kind == fleet.FileSymlink {
		if err := checkTarget(e); err != nil {
			return err
		}
	}
	t.nodes[e.Path] = n
	return nil
}

// parent makes sure that dir, above of, is a directory.
func (t *tree) parent(dir, of string) error {
	was, ok := t.nodes[dir]
	switch {
	case !ok:
		if err := t.checkFold(dir); err != nil {
			return err
		}
		t.nodes[dir] = node{kind: fleet.FileDir}
	case was.kind == fleet.FileSymlink:
		return errs.New(errs.Malformed, "%s lies below the link %s: pack what the link leads to under its own path", quoted(of), quoted(dir))
	case was.kind != fleet.FileDir:
		return errs.New(errs.Malformed, "%s is both a file and a directory: pack it anew", quoted(dir))
	}
	return nil
}

func (t *tree) checkFold(p string) error {
	key := spelling.Key(p)
	if other, ok := t.folds[key]; ok && other != p {
		return spelling.Same(errs.Malformed, other, p)
	}
	if len(t.folds) >= t.most {
		return errs.New(errs.TooLarge, "the archive has more than %d files and directories: split it", t.most)
	}
	t.folds[key] = p
	return nil
}

// same finds the file a hard link shares its content with.
func (t *tree) same(e *Entry) (node, error) {
	to, err := clean(e.Same)
	if err != nil {
		return node{}, errs.New(errs.Malformed, "the hard link %s leads out of the archive, to %s: pack it with --hard-dereference", quoted(e.Path), quoted(e.Same))
	}
	first, ok := t.nodes[to]
	if !ok || first.kind != fleet.FileRegular {
		return node{}, errs.New(errs.Malformed, "the hard link %s leads to %s, which is no file before it in the archive: pack it with --hard-dereference", quoted(e.Path), quoted(e.Same))
	}
	e.Same = to
	return first, nil
}

// checkTarget refuses targets that cannot stay inside whatever else there is.
func checkTarget(e *Entry) error {
	probe := strings.ReplaceAll(e.Target, "..", "__") // what .. does is checked when all links are known
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

// checkLinks follows every link through the tree as a kernel would.
func (t *tree) checkLinks() error {
	var links []string
	for p, n := range t.nodes {
		if n.kind == fleet.FileSymlink {
			links = append(links, p)
		}
	}
	slices.Sort(links) // the same archive gives the same error
	for _, p := range links {
		if err := t.follow(p); err != nil {
			return err
		}
	}
	return nil
}

// follow walks from a link to its end and refuses a way past the root. What is
// missing counts as a directory: somebody may make it later.
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
		if !ok || n.kind != fleet.FileSymlink {
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
