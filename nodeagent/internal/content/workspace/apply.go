package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// applier writes a tree into one directory.
type applier struct {
	builder *Builder
	root    *os.Root
	request Request
	tree    tree
	// fresh is true if the directory is new and empty.
	fresh bool
	text  *textEditor
}

func (b *Builder) apply(ctx context.Context, r Request, rules render.Rules, t tree, dir string, fresh bool) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, failure(ctx, "the directory could not be opened", err)
	}
	defer root.Close()
	a := &applier{builder: b, root: root, request: r, tree: t, fresh: fresh, text: newTextEditor(rules)}
	steps := []func(context.Context) error{a.makeDirs, a.fetch, a.writeFiles, a.writeArtifact, a.createLinks, a.editOtherFiles, a.denyOthers, a.chown}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, failure(ctx, "the directory could not be built", err)
		}
	}
	return slices.Concat(a.missingNotes(), a.unmergedNotes(), a.text.notes()), nil
}

func (a *applier) makeDirs(context.Context) error {
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

// fetch fetches the missing content of all files concurrently.
func (a *applier) fetch(ctx context.Context) error {
	var needed []content.ManifestEntry
	for _, p := range a.tree.sorted(content.FileRegular) {
		if a.keeps(p) {
			continue
		}
		needed = append(needed, a.tree.files[p])
		for _, part := range a.tree.parts[p] {
			needed = append(needed, part.entry)
		}
	}
	err := a.builder.cache.Fetch(ctx, needed)
	var of *blobcache.FileError
	if errors.As(err, &of) {
		return fetchFailure(ctx, of.Path, of.Err)
	}
	return err
}

func (a *applier) createLinks(context.Context) error {
	for _, p := range a.tree.sorted(content.FileSymlink) {
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
