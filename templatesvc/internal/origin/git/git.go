// Package git brings templates from a repository: one commit of it, without its
// history where the server allows that.
//
//	refs ──same commit──▶ nothing
//	  └──another──▶ pack, bounded, into a spool ──checked──▶ tree ──▶ templates
//
// It speaks the protocol over connections of its own, so that a server that hangs is
// given up and nothing is configured for the whole process. What a repository only
// points to is refused by name: submodules, and files kept by Git LFS. Repositories on
// the own disk are read where they are.
package git

import (
	"context"
	"errors"
	"net/url"
	"os"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/fulldisk"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
)

const (
	// maxPack bounds what a repository sends, in bytes.
	maxPack = 2 << 30
	// cached is how much of the objects is kept in memory, in bytes.
	cached = 16 << 20
	// streamed is from which size on objects are read piece by piece.
	streamed = 1 << 20
	what     = "the Git server"
)

// Fetch brings the templates of the commit that a source chooses, unless it was brought
// before. Invalid when the repository has no such commit or holds what a template
// cannot, Denied when the credentials are refused, Unavailable when the server does
// not answer, TooLarge beyond the limits.
func Fetch(ctx context.Context, r origin.Request) (*origin.Holding, error) {
	u, err := url.Parse(r.Source.URL)
	if err != nil {
		return nil, errs.Field("url", "is not a URL")
	}
	if u.Scheme == "file" {
		return local(ctx, r, u.Path)
	}
	server, err := dial(ctx, r, u)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	refs, err := server.refs(ctx)
	if err != nil {
		return nil, err
	}
	c, err := choose(r.Source, refs)
	if err != nil {
		return nil, err
	}
	if c.commit.String() == r.Seen {
		return nil, nil
	}
	dir, err := os.MkdirTemp(r.Spool, "git-*")
	if err != nil {
		return nil, errs.As(errs.Unavailable, "git.Fetch", err)
	}
	done := func() { _ = os.RemoveAll(dir) }
	if err = receive(ctx, server, c, dir); err == nil {
		var h *origin.Holding
		if h, err = hold(ctx, r.Source, open(dir), c.commit); err == nil {
			h.Close = done
			return h, nil
		}
	}
	done()
	return nil, err
}

// dial connects as the URL says; source validation has seen to it that it is known.
func dial(ctx context.Context, r origin.Request, u *url.URL) (remote, error) {
	if u.Scheme == "ssh" {
		return dialSSH(ctx, r, u)
	}
	return newWeb(r, u), nil
}

func open(dir string) *filesystem.Storage {
	return filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(cached), filesystem.Options{LargeObjectThreshold: streamed})
}

// local reads a repository on the own disk.
func local(ctx context.Context, r origin.Request, dir string) (*origin.Holding, error) {
	if fi, err := os.Stat(dir + "/.git"); err == nil && fi.IsDir() {
		dir += "/.git"
	}
	if _, err := os.Stat(dir + "/HEAD"); err != nil {
		return nil, &errs.Error{Kind: errs.Invalid, Field: "url", Message: "no repository is found at the URL's path on this replica's disk", Err: err}
	}
	objects := open(dir)
	commit, err := localCommit(r.Source, objects)
	if err != nil {
		return nil, err
	}
	if commit.String() == r.Seen {
		return nil, nil
	}
	return hold(ctx, r.Source, objects, commit)
}

func localCommit(s fleet.TemplateSource, objects *filesystem.Storage) (plumbing.Hash, error) {
	if s.Commit != "" {
		return plumbing.NewHash(s.Commit), nil
	}
	name := plumbing.HEAD
	switch {
	case s.Branch != "":
		name = plumbing.NewBranchReferenceName(s.Branch)
	case s.Tag != "":
		name = plumbing.NewTagReferenceName(s.Tag)
	}
	ref, err := storer.ResolveReference(objects, name)
	if err != nil {
		return plumbing.ZeroHash, noRef(s)
	}
	if tag, err := object.GetTag(objects, ref.Hash()); err == nil {
		return tag.Target, nil
	}
	return ref.Hash(), nil
}

// noRef says which reference the repository has not.
func noRef(s fleet.TemplateSource) error {
	switch {
	case s.Branch != "":
		return errs.Field("branch", "the repository has no branch %s: was it deleted or renamed?", s.Branch)
	case s.Tag != "":
		return errs.Field("tag", "the repository has no tag %s", s.Tag)
	case s.Commit != "":
		return errs.Field("commit", "the repository has no commit %s that a branch leads to", s.Commit)
	}
	return errs.Field("branch", "the repository has no default branch: name one")
}

// broken says that what was received cannot be read.
func broken(err error) error {
	var own *errs.Error
	switch {
	case errors.As(err, &own):
		return err
	case fulldisk.Is(err):
		return fulldisk.Error("git", err)
	}
	return &errs.Error{Op: "git", Kind: errs.Unavailable, Message: "what the Git server sent is not whole: it is asked again", Err: err}
}
