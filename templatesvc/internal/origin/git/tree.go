package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
)

// file is one entry of a template in the repository.
type file struct {
	inside string // its path in the template
	path   string // and in the repository
	mode   filemode.FileMode
	hash   plumbing.Hash
}

// hold finds the templates of a commit.
func hold(ctx context.Context, s fleet.TemplateSource, objects storer.EncodedObjectStorer, hash plumbing.Hash) (*origin.Holding, error) {
	commit, err := object.GetCommit(objects, hash)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil, noRef(s)
	}
	if err != nil {
		return nil, broken(err)
	}
	root, err := commit.Tree()
	if err == nil && s.Path != "" {
		if root, err = root.Tree(s.Path); errors.Is(err, object.ErrDirectoryNotFound) {
			return nil, errs.Field("path", "the repository has no directory %s at %s", s.Path, hash)
		}
	}
	if err != nil {
		return nil, broken(err)
	}
	w := walk{ctx: ctx, source: s, objects: objects, files: map[fleet.TemplateRef][]file{}}
	if err := w.into(root, "", 0); err != nil {
		return nil, err
	}
	h := &origin.Holding{Revision: hash.String(), Groups: w.groups, Catalog: w.catalog}
	for ref, files := range w.files {
		h.Templates = append(h.Templates, origin.Template{Ref: ref, Manifest: func(ctx context.Context, add origin.Add) (fleet.Manifest, error) {
			return manifest(ctx, objects, files, add)
		}})
	}
	slices.SortFunc(h.Templates, func(a, b origin.Template) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	return h, nil
}

// walk sorts a tree's files into templates.
type walk struct {
	ctx     context.Context
	source  fleet.TemplateSource
	objects storer.EncodedObjectStorer
	files   map[fleet.TemplateRef][]file
	groups  []fleet.DeclaredGroup
	catalog []fleet.DeclaredCatalog
	seen    int
}

// maxFiles bounds how many files of a repository are looked at.
const maxFiles = 500_000

func (w *walk) into(t *object.Tree, dir string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return errs.Wrap("git.walk", err)
	}
	if depth > fleet.MaxDepth {
		return errs.New(errs.TooLarge, "the repository has directories below %q that lie too deep", dir)
	}
	for _, e := range t.Entries {
		if w.seen++; w.seen > maxFiles {
			return errs.New(errs.TooLarge, "the repository has more than %d files: give a path inside it", maxFiles)
		}
		p := path.Join(dir, e.Name)
		if e.Mode == filemode.Dir {
			below, err := object.GetTree(w.objects, e.Hash)
			if err != nil {
				return broken(err)
			}
			if err := w.into(below, p, depth+1); err != nil {
				return err
			}
			continue
		}
		if err := w.file(p, e); err != nil {
			return err
		}
	}
	return nil
}

// file finds out what a file is for.
func (w *walk) file(p string, e object.TreeEntry) error {
	full, declared := path.Join(w.source.Path, p), false
	if w.source.Declares {
		switch directory, name := path.Split(p); {
		case directory == "groups/":
			return w.group(full, name, e)
		case directory == "" && strings.TrimSuffix(name, path.Ext(name)) == "catalog":
			return w.entries(full, e)
		}
		if p, declared = strings.CutPrefix(p, "templates/"); !declared {
			return nil
		}
	}
	if ref, inside, ok := origin.Place(w.source, p); ok {
		w.files[ref] = append(w.files[ref], file{inside: inside, path: full, mode: e.Mode, hash: e.Hash})
	}
	return nil
}

// manifest reads a template's files.
func manifest(ctx context.Context, objects storer.EncodedObjectStorer, files []file, add origin.Add) (fleet.Manifest, error) {
	var m fleet.Manifest
	limits := fleet.VersionLimits()
	left := limits.TreeBytes
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return m, errs.Wrap("git.manifest", err)
		}
		if f.mode == filemode.Submodule {
			return m, errs.New(errs.Invalid, "%s is a submodule, which is not followed: keep its files in this repository, or make a source of it", f.path)
		}
		blob, err := object.GetBlob(objects, f.hash)
		if err != nil {
			return m, broken(err)
		}
		if left -= blob.Size; left < 0 {
			return m, errs.New(errs.TooLarge, "the template is larger than allowed: split it")
		}
		e, err := entry(f, blob, min(limits.FileBytes, left+blob.Size), add)
		if err != nil {
			return m, err
		}
		m.Entries = append(m.Entries, e)
	}
	return m, nil
}

// entry stores one file's content.
func entry(f file, blob *object.Blob, limit int64, add origin.Add) (fleet.ManifestEntry, error) {
	e := fleet.ManifestEntry{Path: f.inside, Mode: 0o644}
	r, err := blob.Reader()
	if err != nil {
		return e, broken(err)
	}
	defer r.Close()
	switch f.mode {
	case filemode.Symlink:
		target, err := io.ReadAll(io.LimitReader(r, fleet.MaxPathBytes+1))
		if err != nil {
			return e, broken(err)
		}
		e.Kind, e.Mode, e.Target = fleet.FileSymlink, 0, string(target)
		return e, nil
	case filemode.Executable:
		e.Mode = 0o755
	}
	head := make([]byte, min(blob.Size, int64(len(lfs))))
	if _, err := io.ReadFull(r, head); err != nil {
		return e, broken(err)
	}
	if string(head) == lfs {
		return e, errs.New(errs.Invalid, "%s is kept by Git LFS, which is not followed: keep the file itself in the repository, or bring it by a source of kind http", f.path)
	}
	c, err := add(io.MultiReader(bytes.NewReader(head), r), limit)
	e.Size, e.SHA256, e.Chunks = c.Size, c.SHA256, c.Chunks
	return e, err
}

// lfs is how a file begins that only points to one kept elsewhere.
const lfs = "version https://git-lfs.github.com/spec/v1\n"
