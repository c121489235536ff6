package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/blobs"
	"github.com/orreryhq/orrery/nodeagent/internal/render"
)

// application is one laying of a tree over a directory.
type application struct {
	builder *Builder
	root    *os.Root
	request Request
	tree    tree
	// fresh is true when the directory is new and nothing can be in the way.
	fresh  bool
	text   *text
	copier copier
	ways   ways
}

func (b *Builder) apply(ctx context.Context, r Request, rules render.Rules, t tree, dir string, fresh bool) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, failure(ctx, "the directory could not be opened", err)
	}
	defer root.Close()
	a := &application{builder: b, root: root, request: r, tree: t, fresh: fresh, text: newText(rules)}
	steps := []func(context.Context) error{a.makeDirs, a.fetch, a.placeFiles, a.placeArtifact, a.placeLinks, a.rewriteOthers, a.closeToOthers, a.own}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, failure(ctx, "the directory could not be built", err)
		}
	}
	return slices.Concat(a.missing(), a.unmerged(), a.text.notes()), nil
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

// fetch brings what is missing of the files' content, all that can come at once.
func (a *application) fetch(ctx context.Context) error {
	var needed []fleet.ManifestEntry
	for _, p := range a.tree.sorted(fleet.FileRegular) {
		if a.keeps(p) {
			continue
		}
		needed = append(needed, a.tree.files[p])
		for _, part := range a.tree.parts[p] {
			needed = append(needed, part.entry)
		}
	}
	err := a.builder.cache.Fetch(ctx, needed)
	var of *blobs.FileError
	if errors.As(err, &of) {
		return fetchFailure(ctx, of.Path, of.Err)
	}
	return err
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
			if fi, err := a.root.Lstat(p); err == nil && fi.IsDir() {
				return inTheWay(p, "a directory", "a link")
			}
			_ = a.root.Remove(p)
		}
		if err := a.root.Symlink(a.tree.files[p].Target, p); err != nil {
			return err
		}
	}
	return nil
}
