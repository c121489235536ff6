package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// maxRefs is the maximum size of a server's references in bytes.
const maxRefs = 16 << 20

// remote is a connection to a server, which sends its references and then one pack.
type remote interface {
	refs(ctx context.Context) (*packp.AdvRefs, error)
	// pack sends a request and returns the answer.
	pack(ctx context.Context, request []byte) (io.ReadCloser, error)
	Close()
}

// choice is what to request from a server.
type choice struct {
	commit plumbing.Hash
	wants  []plumbing.Hash
	depth  int
	caps   *capability.List
}

// choose finds the commit of a source among the references.
func choose(s content.TemplateSource, refs *packp.AdvRefs) (choice, error) {
	c := choice{caps: refs.Capabilities}
	if refs.Capabilities.Supports(capability.Shallow) {
		c.depth = 1
	}
	name := ""
	switch {
	case s.Commit != "":
		return chooseCommit(s, refs, c)
	case s.Branch != "":
		name = "refs/heads/" + s.Branch
	case s.Tag != "":
		name = "refs/tags/" + s.Tag
	case refs.Head != nil:
		c.commit, c.wants = *refs.Head, []plumbing.Hash{*refs.Head}
		return c, nil
	}
	hash, ok := refs.References[name]
	if !ok {
		return c, noRef(s)
	}
	c.commit, c.wants = hash, []plumbing.Hash{hash}
	if peeled, ok := refs.Peeled[name]; ok {
		c.commit = peeled
	}
	return c, nil
}

// chooseCommit requests a single commit if the server allows that or a branch ends with it.
// Otherwise, it requests the history of all branches.
func chooseCommit(s content.TemplateSource, refs *packp.AdvRefs, c choice) (choice, error) {
	c.commit = plumbing.NewHash(s.Commit)
	var ends []plumbing.Hash
	for name, hash := range refs.References {
		if hash == c.commit || refs.Peeled[name] == c.commit {
			c.wants = []plumbing.Hash{hash}
			return c, nil
		}
		if strings.HasPrefix(name, "refs/heads/") && !slices.Contains(ends, hash) {
			ends = append(ends, hash)
		}
	}
	if c.caps.Supports(capability.AllowReachableSHA1InWant) {
		c.wants = []plumbing.Hash{c.commit}
		return c, nil
	}
	if c.wants, c.depth = ends, 0; len(ends) == 0 {
		return c, noRef(s)
	}
	return c, nil
}

// receive requests a pack and stores its objects in dir.
func receive(ctx context.Context, server remote, c choice, dir string) error {
	request := packp.NewUploadPackRequest()
	request.Wants, request.Depth = c.wants, packp.DepthCommits(c.depth)
	for _, wanted := range []capability.Capability{capability.OFSDelta, capability.Shallow} {
		if c.caps.Supports(wanted) {
			if err := request.Capabilities.Set(wanted); err != nil {
				return errs.WrapAs(errs.Internal, "git.receive", err)
			}
		}
	}
	var b bytes.Buffer
	if err := request.UploadRequest.Encode(&b); err != nil {
		return errs.WrapAs(errs.Internal, "git.receive", err)
	}
	if err := pktline.NewEncoder(&b).Encodef("done\n"); err != nil {
		return errs.WrapAs(errs.Internal, "git.receive", err)
	}
	answer, err := server.pack(ctx, b.Bytes())
	if err != nil {
		return err
	}
	defer answer.Close()
	response := packp.NewUploadPackResponse(request)
	limit := &limited{r: answer, left: maxPack}
	if err := response.Decode(io.NopCloser(limit)); err != nil {
		return limit.or(err)
	}
	pack, err := keep(dir, response)
	if err != nil {
		return limit.or(err)
	}
	defer pack.Close()
	d, err := checkPack(ctx, pack)
	if err != nil {
		return limit.or(err)
	}
	return limit.or(index(d, pack, dir))
}

// limited is an answer with a maximum size. It remembers why it ended.
type limited struct {
	r    io.Reader
	left int64
	err  error
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		l.err = errs.New(errs.TooLarge, "the repository sends more than %d GiB: split it, or take large files out of it", maxPack>>30)
		return 0, l.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = sources.Unreachable(what, err)
	}
	return n, err
}

// or returns why the answer ended early, or otherwise err.
func (l *limited) or(err error) error {
	switch {
	case err == nil:
		return nil
	case l.err != nil:
		return l.err
	}
	return broken(err)
}

// decodeRefs parses the references of a server.
func decodeRefs(r io.Reader) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	err := refs.Decode(io.LimitReader(r, maxRefs))
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs):
		return nil, errs.Field("url", "leads to an empty repository: push something to it")
	case err != nil:
		return nil, sources.Unreachable(what, err)
	}
	return refs, nil
}
