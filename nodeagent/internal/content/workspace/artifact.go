package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// writeArtifact writes the platform's artifact, unless a template has that file. Later steps
// treat it as a file of a template.
func (a *applier) writeArtifact(ctx context.Context) error {
	want := a.request.Plan.Artifact
	if want == nil {
		return nil
	}
	p := path.Clean(want.Path)
	if _, brought := a.tree.files[p]; brought || a.keeps(p) {
		return nil
	}
	if want.SHA256 == "" {
		if a.hasFile(p) { // put there by the server or an operator, so it stays
			return nil
		}
		if want.URL != "" {
			return &Failure{Reason: fleet.ReasonArtifactFetch, Message: fmt.Sprintf(
				"%s %s has no hash in the catalog yet: no gateway has downloaded %s so far. See the gateway's log, correct the URL, or set sha256",
				want.Platform, want.Version, want.URL)}
		}
		return &Failure{Reason: fleet.ReasonArtifactFetch, Message: fmt.Sprintf(
			"%s %s is not in the catalog: add it there, or add %s to a template", want.Platform, want.Version, p)}
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
	e := content.ManifestEntry{Path: p, Mode: 0o644, Size: fi.Size(), SHA256: want.SHA256}
	a.tree.files[p] = e
	return a.update(p, body{blob: blob, size: e.Size, mode: a.mode(p, fs.FileMode(e.Mode))})
}

// hasFile reports whether a kept static directory has a file or link at p.
func (a *applier) hasFile(p string) bool {
	fi, err := a.root.Lstat(p)
	return !a.fresh && err == nil && !fi.IsDir()
}

// artifactEntry returns the plan's artifact as a manifest entry, if it has one.
func artifactEntry(p fleet.Plan) []content.ManifestEntry {
	if p.Artifact == nil || p.Artifact.SHA256 == "" {
		return nil
	}
	return []content.ManifestEntry{{Path: path.Clean(p.Artifact.Path), SHA256: p.Artifact.SHA256}}
}

// artifact returns the hash of the plan's artifact, or "" if there is none or a template has
// that file.
func (t *tree) artifact(p fleet.Plan) string {
	for _, e := range artifactEntry(p) {
		if _, brought := t.files[e.Path]; !brought {
			return e.SHA256
		}
	}
	return ""
}

// artifactFailure is the failure for an artifact that could not be fetched.
func artifactFailure(ctx context.Context, of *content.Artifact, err error) error {
	switch {
	case ctx.Err() != nil:
		return errs.Wrap("workspace.Build", ctx.Err())
	case errs.Is(err, errs.Exhausted):
		return &Failure{Reason: fleet.ReasonDiskFull, Message: fleet.ReasonDiskFull.Text(), Err: err}
	case errs.Is(err, errs.Conflict):
		return &Failure{Reason: fleet.ReasonArtifactHash, Message: causeText(err), Err: err}
	}
	return &Failure{Reason: fleet.ReasonArtifactFetch, Err: err, Message: fmt.Sprintf("%s %s could not be fetched: %s", of.Platform, of.Version, causeText(err))}
}
