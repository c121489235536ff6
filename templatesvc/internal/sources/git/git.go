// Package git reads templates from one commit of a Git repository, without its history if
// the server allows that.
//
//	refs ──same commit──▶ nothing
//	  └──another──▶ pack, limited, into a spool ──checked──▶ tree ──▶ templates
//
// It uses its own connections, so that timeouts apply and no process-wide configuration is
// needed. It refuses submodules and Git LFS files, and names them. Repositories on the
// local disk are read in place.
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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

const (
	// maxPack is the maximum size of a pack in bytes.
	maxPack = 2 << 30
	// cached is the size of the object cache in bytes.
	cached = 16 << 20
	// streamed is the size from which objects are read as a stream.
	streamed = 1 << 20
	what     = "the Git server"
)

// Fetch reads the templates of a source's commit, unless it is unchanged. It returns
// Invalid when the commit does not exist or holds no valid template, Denied when the
// credentials are refused, Unavailable when the server does not answer, and TooLarge beyond
// a limit.
func Fetch(ctx context.Context, r sources.Request) (*sources.Holding, error) {
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
		return nil, errs.WrapAs(errs.Unavailable, "git.Fetch", err)
	}
	done := func() { _ = os.RemoveAll(dir) }
	if err = receive(ctx, server, c, dir); err == nil {
		var h *sources.Holding
		if h, err = hold(ctx, r.Source, open(dir), c.commit); err == nil {
			h.Close = done
			return h, nil
		}
	}
	done()
	return nil, err
}

// dial connects according to the URL's scheme, which was validated with the source.
func dial(ctx context.Context, r sources.Request, u *url.URL) (remote, error) {
	if u.Scheme == "ssh" {
		return dialSSH(ctx, r, u)
	}
	return newWeb(r, u), nil
}

func open(dir string) *filesystem.Storage {
	return filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(cached), filesystem.Options{LargeObjectThreshold: streamed})
}

// local reads a repository on the local disk.
func local(ctx context.Context, r sources.Request, dir string) (*sources.Holding, error) {
	if fi, err := os.Stat(dir + "/.git"); err == nil && fi.IsDir() {
		dir += "/.git"
	}
	if _, err := os.Stat(dir + "/HEAD"); err != nil {
		return nil, &errs.Error{Kind: errs.Invalid, Field: "url", Message: "leads to no repository on this replica's disk", Err: err}
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

func localCommit(s content.TemplateSource, objects *filesystem.Storage) (plumbing.Hash, error) {
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

// noRef returns the error for a missing reference.
func noRef(s content.TemplateSource) error {
	switch {
	case s.Branch != "":
		return errs.Field("branch", "%s does not exist in the repository: was it deleted or renamed?", s.Branch)
	case s.Tag != "":
		return errs.Field("tag", "%s does not exist in the repository", s.Tag)
	case s.Commit != "":
		return errs.Field("commit", "%s is no commit that a branch of the repository leads to", s.Commit)
	}
	return errs.Field("branch", "is missing: name one, because the repository has no default branch")
}

// broken returns the error for received data that cannot be read.
func broken(err error) error {
	var own *errs.Error
	switch {
	case errors.As(err, &own):
		return err
	case diskerror.Is(err):
		return diskerror.Error("git", err)
	}
	return &errs.Error{Op: "git", Kind: errs.Unavailable, Message: "what the Git server sent is not whole: it is asked again", Err: err}
}
