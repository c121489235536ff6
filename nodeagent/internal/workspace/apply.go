package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// application is one laying of a tree over a directory.
type application struct {
	builder *Builder
	root    *os.Root
	request Request
	tree    tree
	// fresh is true when the directory is new and nothing can be in the way.
	fresh  bool
	text   *substitution
	copier copier
}

func (b *Builder) apply(ctx context.Context, r Request, t tree, dir string, fresh bool) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, failure(ctx, "the directory could not be opened", err)
	}
	defer root.Close()
	a := &application{builder: b, root: root, request: r, tree: t, fresh: fresh, text: newSubstitution(r.Values)}
	steps := []func(context.Context) error{a.makeDirs, a.placeFiles, a.placeLinks, a.rewriteOthers, a.own}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, failure(ctx, "the directory could not be built", err)
		}
	}
	return append(a.missing(), a.text.notes()...), nil
}

func (a *application) makeDirs(context.Context) error {
	dirs := make([]string, 0, len(a.tree.dirs))
	for d := range a.tree.dirs {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs) // parents first
	for _, d := range dirs {
		err := a.root.Mkdir(d, 0o755)
		if errors.Is(err, fs.ErrExist) {
			if fi, err := a.root.Stat(d); err == nil && !fi.IsDir() {
				return inTheWay(d, "a file", "a directory")
			}
			continue
		}
		if err != nil {
			return err
		}
		if e, ok := a.tree.files[d]; ok && e.Mode != 0 {
			if err := a.root.Chmod(d, fs.FileMode(e.Mode&0o777|0o700)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *application) placeLinks(context.Context) error {
	for _, p := range a.tree.sorted(fleet.FileSymlink) {
		if a.keeps(p) {
			continue
		}
		if !a.fresh {
			if target, err := a.root.Readlink(p); err == nil && target == a.tree.files[p].Target {
				continue
			}
			_ = a.root.Remove(p)
		}
		if err := a.root.Symlink(a.tree.files[p].Target, p); err != nil {
			return err
		}
	}
	return nil
}

func (a *application) listed(p string) bool {
	return slices.ContainsFunc(a.request.Plan.FileModifications, func(pattern string) bool { return glob(pattern, p) })
}

// rewriteOthers handles listed files that no layer brings: those a server wrote.
func (a *application) rewriteOthers(context.Context) error {
	if a.fresh {
		return nil
	}
	for _, name := range a.request.Plan.FileModifications {
		p := path.Clean(name)
		if _, brought := a.tree.files[p]; brought || isPattern(name) {
			continue
		}
		if _, err := a.root.Lstat(p); err != nil {
			continue
		}
		if err := a.rewriteInPlace(p); err != nil {
			return err
		}
	}
	return nil
}

// missing notes the listed names that no file answers to.
func (a *application) missing() []string {
	var notes []string
	for _, pattern := range a.request.Plan.FileModifications {
		found := false
		for p, e := range a.tree.files {
			if e.Kind == fleet.FileRegular && glob(pattern, p) {
				found = true
				break
			}
		}
		if !found && !isPattern(pattern) {
			_, err := a.root.Lstat(path.Clean(pattern))
			found = err == nil
		}
		if !found {
			notes = append(notes, fmt.Sprintf("no file matches %s of fileModifications", pattern))
		}
	}
	return notes
}
