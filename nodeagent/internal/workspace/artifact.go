package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// placeArtifact brings the platform's artifact, unless a template brings that file.
// From then on it is treated as if one did.
func (a *application) placeArtifact(ctx context.Context) error {
	want := a.request.Plan.Artifact
	if want == nil {
		return nil
	}
	p := path.Clean(want.Path)
	if _, brought := a.tree.files[p]; brought || a.keeps(p) {
		return nil
	}
	if want.SHA256 == "" {
		if a.stands(p) { // the server's own, or somebody's who put it there: nothing is to take its place
			return nil
		}
		if want.URL != "" {
			return &Failure{Reason: fleet.ReasonArtifactFetch, Message: fmt.Sprintf(
				"%s %s has no hash in the catalog yet: no gateway has downloaded %s so far, and its log says why; correct the URL, or give sha256",
				want.Platform, want.Version, want.URL)}
		}
		return &Failure{Reason: fleet.ReasonArtifactFetch, Message: fmt.Sprintf(
			"%s %s is not in the catalog: add it there, or have a template bring %s", want.Platform, want.Version, p)}
	}
	file, err := a.builder.cache.Artifact(ctx, want.SHA256)
	if err != nil {
		return artifactFailure(ctx, want, err)
	}
	blob, err := os.Open(file)
	if err != nil {
		return err
	}
	defer blob.Close()
	fi, err := blob.Stat()
	if err != nil {
		return err
	}
	if err := a.root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	e := fleet.ManifestEntry{Path: p, Mode: 0o644, Size: fi.Size(), SHA256: want.SHA256}
	a.tree.files[p] = e
	return a.settle(p, content{blob: blob, size: e.Size, mode: a.mode(p, fs.FileMode(e.Mode))})
}

// stands reports whether a static directory was left with a file, or a link to one.
func (a *application) stands(p string) bool {
	fi, err := a.root.Lstat(p)
	return !a.fresh && err == nil && !fi.IsDir()
}

// artifactEntry is a plan's artifact as something to be held; none without one.
func artifactEntry(p fleet.Plan) []fleet.ManifestEntry {
	if p.Artifact == nil || p.Artifact.SHA256 == "" {
		return nil
	}
	return []fleet.ManifestEntry{{Path: path.Clean(p.Artifact.Path), SHA256: p.Artifact.SHA256}}
}

// artifact is the hash of what the catalog brings; "" where that is nothing.
func (t *tree) artifact(p fleet.Plan) string {
	for _, e := range artifactEntry(p) {
		if _, brought := t.files[e.Path]; !brought {
			return e.SHA256
		}
	}
	return ""
}

// artifactFailure words why an artifact cannot be had.
func artifactFailure(ctx context.Context, of *fleet.Artifact, err error) error {
	switch {
	case ctx.Err() != nil:
		return errs.Wrap("workspace.Build", ctx.Err())
	case errs.Is(err, errs.Exhausted):
		return &Failure{Reason: fleet.ReasonDiskFull, Message: fleet.ReasonDiskFull.Text(), Err: err}
	case errs.Is(err, errs.Conflict):
		return &Failure{Reason: fleet.ReasonArtifactHash, Message: why(err), Err: err}
	}
	return &Failure{Reason: fleet.ReasonArtifactFetch, Err: err, Message: fmt.Sprintf("%s %s could not be fetched: %s", of.Platform, of.Version, why(err))}
}
