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
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// file is a file of a template in the repository.
type file struct {
	inside string // path in the template
	path   string // path in the repository
	mode   filemode.FileMode
	hash   plumbing.Hash
}

// hold returns the templates of a commit.
func hold(ctx context.Context, s content.TemplateSource, objects storer.EncodedObjectStorer, hash plumbing.Hash) (*sources.Holding, error) {
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
			return nil, errs.Field("path", "%s is no directory of the repository at %s", s.Path, hash)
		}
	}
	if err != nil {
		return nil, broken(err)
	}
	w := walk{ctx: ctx, source: s, objects: objects, files: map[content.TemplateRef][]file{}}
	if err := w.into(root, "", 0); err != nil {
		return nil, err
	}
	h := &sources.Holding{Revision: hash.String(), Groups: w.groups, Catalog: w.catalog}
	for ref, files := range w.files {
		h.Templates = append(h.Templates, sources.Template{Ref: ref, Manifest: func(ctx context.Context, add sources.Add) (content.Manifest, error) {
			return manifest(ctx, objects, files, add)
		}})
	}
	slices.SortFunc(h.Templates, func(a, b sources.Template) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	return h, nil
}

// walk assigns the files of a tree to templates.
type walk struct {
	ctx     context.Context
	source  content.TemplateSource
	objects storer.EncodedObjectStorer
	files   map[content.TemplateRef][]file
	groups  []compose.DeclaredGroup
	catalog []compose.DeclaredCatalog
	seen    int
}

// maxFiles is the maximum number of files in a repository.
const maxFiles = 500_000

func (w *walk) into(t *object.Tree, dir string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return errs.Wrap("git.walk", err)
	}
	if depth > content.MaxDepth {
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

// file assigns a file to a template or reads its declarations.
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
	if ref, inside, ok := sources.Place(w.source, p); ok {
		w.files[ref] = append(w.files[ref], file{inside: inside, path: full, mode: e.Mode, hash: e.Hash})
	}
	return nil
}

// manifest reads the files of a template.
func manifest(ctx context.Context, objects storer.EncodedObjectStorer, files []file, add sources.Add) (content.Manifest, error) {
	var m content.Manifest
	limits := content.VersionLimits()
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

// entry stores the content of one file.
func entry(f file, blob *object.Blob, limit int64, add sources.Add) (content.ManifestEntry, error) {
	e := content.ManifestEntry{Path: f.inside, Mode: 0o644}
	r, err := blob.Reader()
	if err != nil {
		return e, broken(err)
	}
	defer r.Close()
	switch f.mode {
	case filemode.Symlink:
		target, err := io.ReadAll(io.LimitReader(r, content.MaxPathBytes+1))
		if err != nil {
			return e, broken(err)
		}
		e.Kind, e.Mode, e.Target = content.FileSymlink, 0, string(target)
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

// lfs is the start of a Git LFS pointer file.
const lfs = "version https://git-lfs.github.com/spec/v1\n"
