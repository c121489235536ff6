// Package workspace builds the directory an instance runs in: the plan's layers
// in their order, the later one winning, with placeholders replaced in the files
// the plan lists.
//
// Invariants:
//   - A directory appears whole or not at all: it is built beside its place and
//     moved there. What fails leaves nothing behind.
//   - Nothing is ever written outside the directory, whatever links a template or a
//     server put into it.
//   - A static directory is built once and kept. Later starts lay the layers over
//     it, without touching files that are there (or, with Override, those that are
//     protected); each file is replaced as a whole. It is never removed: what somebody
//     else has made in its place meanwhile is theirs. What is in it is on the disk before
//     it can be found there: an empty file that a power cut left would be kept for ever.
//   - A blob's content is copied, never shared: a server may write to all it got, and the
//     cache stays closed to it. Blocks that a filesystem shares belong to two files.
//   - A directory is closed to all users but its own, and so is the way to one of a
//     container: root in a container may open the directory itself.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/blobs"
	"github.com/orreryhq/orrery/nodeagent/internal/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/render"
)

// Builder builds directories below one data directory. It is safe for concurrent use.
type Builder struct {
	data  string
	cache *blobs.Cache
	// sync flushes a file or directory.
	sync func(*os.File) error
}

// New makes a builder.
func New(dataDir string, cache *blobs.Cache) *Builder {
	return &Builder{data: dataDir, cache: cache, sync: (*os.File).Sync}
}

// Failure is why a directory could not be built.
type Failure struct {
	Reason  fleet.Reason
	Message string
	Err     error
}

// Error joins message and cause.
func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Message
	}
	return f.Message + ": " + f.Err.Error()
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Request is what to build.
type Request struct {
	Placement fleet.Placement
	Plan      fleet.Plan
	// Values are the placeholder values.
	Values map[string]string
	// Absent says that a static directory was not there when it was to be claimed: it
	// is made, and if it is there by now it is somebody else's.
	Absent bool
}

// The directories below the data directory that hold the instances' own.
const (
	staticDir = "static"
	// runningDir holds the dynamic ones. Instances' users may pass it.
	runningDir = "running"
	// containedDir holds the dynamic ones of containers: only the agent and the engine,
	// which mounts them, may pass it.
	containedDir = "containers"
)

// Dir is where an instance's directory is or will be.
func (b *Builder) Dir(p fleet.Placement, plan fleet.Plan) string {
	switch {
	case plan.Static:
		return filepath.Join(b.StaticRoot(), string(p.Group), p.Name)
	case plan.Runtime == fleet.RuntimeDocker:
		return filepath.Join(b.data, containedDir, string(p.Instance))
	}
	return filepath.Join(b.data, runningDir, string(p.Instance))
}

// StaticRoot has the directories of static instances, at GROUP/NAME.
func (b *Builder) StaticRoot() string { return filepath.Join(b.data, staticDir) }

// Build builds the directory and returns what its operator should know: unknown
// placeholders, listed files that are missing or no text. Errors are Failures, or
// of Kind Canceled.
func (b *Builder) Build(ctx context.Context, r Request) (notes []string, err error) {
	rules := render.RulesOf(r.Plan, r.Values)
	tree, err := b.merge(ctx, r.Plan.Layers, rules)
	if err != nil {
		return nil, err
	}
	defer b.cache.Hold(digests(r.Plan.Layers), append(tree.entries(), artifactEntry(r.Plan)...))()
	defer func() {
		if err == nil {
			for i, l := range r.Plan.Layers {
				b.cache.Used(l.Digest, tree.left(tree.layers[i]))
			}
		}
	}()
	dir := b.Dir(r.Placement, r.Plan)
	if r.Plan.Static && !r.Absent {
		switch there, err := exists(dir); {
		case err != nil:
			return nil, failure(ctx, "the directory cannot be looked at", err)
		case there:
			if err := b.passable(r, dir); err != nil {
				return nil, failure(ctx, "the way to the directory cannot be opened", err)
			}
			return b.apply(ctx, r, rules, tree, dir, false)
		}
	}
	staging := stagingOf(dir, r.Placement)
	if !r.Plan.Static && len(tree.files)+len(rules.Named()) == 0 { // it is whole as soon as it is there
		staging = dir
	}
	if err := makeEmpty(staging); err != nil {
		return nil, failure(ctx, "the directory could not be made", err)
	}
	if err := b.passable(r, dir); err != nil {
		return nil, failure(ctx, "the way to the directory cannot be opened", err)
	}
	notes, err = b.apply(ctx, r, rules, tree, staging, true)
	if err == nil && r.Plan.Static {
		err = failure(ctx, "the directory could not be flushed to the disk", b.flush(ctx, staging))
	}
	if err == nil {
		err = failure(ctx, "the directory could not be moved to its place", place(staging, dir, r.Plan.Static))
	}
	if err != nil {
		return nil, errors.Join(err, removeAll(staging))
	}
	if r.Plan.Static {
		return notes, failure(ctx, "the directory's place could not be flushed to the disk", b.flushEntries(dir))
	}
	return notes, nil
}

func makeEmpty(dir string) error {
	if err := errors.Join(removeAll(dir), os.MkdirAll(filepath.Dir(dir), wayMode)); err != nil {
		return err
	}
	spread(filepath.Dir(dir))
	return os.Mkdir(dir, ownMode)
}

// stagingOf is where a directory is built. Where several nodes share the storage
// each has its own.
func stagingOf(dir string, p fleet.Placement) string {
	return filepath.Join(filepath.Dir(dir), ".new-"+filepath.Base(dir)+"-"+string(p.Node))
}

// place moves a built directory to where it belongs: a dynamic one in place of what
// an earlier generation left, a static one where there is nothing.
func place(staging, dir string, static bool) error {
	if staging == dir {
		return nil
	}
	if !static {
		return errors.Join(removeAll(dir), os.Rename(staging, dir))
	}
	err := os.Rename(staging, dir)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR) {
		return &Failure{Reason: fleet.ReasonDirectoryTaken, Err: err, Message: fmt.Sprintf(
			"%s was made by somebody else while it was built here: it is left as it is; start the instance again once that one has ended", dir)}
	}
	return err
}

// Remove removes a dynamic instance's directory; a static one stays.
func (b *Builder) Remove(p fleet.Placement, plan fleet.Plan) error {
	if plan.Static {
		return nil
	}
	dir := b.Dir(p, plan)
	return errs.As(errs.Unavailable, "workspace.Remove", errors.Join(removeAll(dir), removeAll(stagingOf(dir, p))))
}

// exists is false only where it is known that there is nothing.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// merge reads the layers' manifests and lays them over each other.
func (b *Builder) merge(ctx context.Context, layers []fleet.PlanLayer, rules render.Rules) (tree, error) {
	t := tree{files: map[string]fleet.ManifestEntry{}, dirs: map[string]bool{}, parts: map[string][]part{}}
	for _, l := range layers {
		if l.Digest == "" && l.Storage != "" {
			return t, &Failure{Reason: fleet.ReasonTemplateMissing, Message: fmt.Sprintf("storage %s has no template %s", l.Storage, l.TemplateRef)}
		}
		if l.Digest == "" {
			return t, &Failure{Reason: fleet.ReasonTemplateMissing, Message: fmt.Sprintf("template %s does not exist", l.TemplateRef)}
		}
		m, err := b.cache.Manifest(ctx, l.Digest)
		switch {
		case errs.Is(err, errs.Invalid), errs.Is(err, errs.TooLarge):
			return t, &Failure{Reason: fleet.ReasonPrepareFailed, Message: fmt.Sprintf("template %s cannot be used: %s", l.TemplateRef, errs.MessageOf(err)), Err: err}
		case err != nil:
			return t, fetchFailure(ctx, "template "+l.String(), err)
		}
		t.layers = append(t.layers, m)
		for _, e := range m.Entries {
			if err := t.add(e); err != nil {
				return t, &Failure{Reason: fleet.ReasonPrepareFailed, Message: fmt.Sprintf("template %s: %v", l.TemplateRef, err)}
			}
			if e.Kind == fleet.FileRegular && rules.Merges(e.Path) {
				t.parts[e.Path] = append(t.parts[e.Path], part{l.String(), e})
			}
		}
	}
	t.removeBelow(claim.FileName) // it says whose the directory is, which no template knows
	t.remove(claim.FileName)
	// Links of one layer may lead through those of another.
	if err := (fleet.Manifest{Entries: slices.Collect(maps.Values(t.files))}).CheckLinks(); err != nil {
		return t, &Failure{Reason: fleet.ReasonPrepareFailed, Message: "its templates together: " + errs.MessageOf(err), Err: err}
	}
	return t, nil
}

func fetchFailure(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return errs.Wrap("workspace.Build", ctx.Err())
	}
	if errs.Is(err, errs.Exhausted) {
		return &Failure{Reason: fleet.ReasonDiskFull, Message: fleet.ReasonDiskFull.Text(), Err: err}
	}
	advice := ""
	if errs.Is(err, errs.NotFound) {
		advice = "; if its template was deleted or published anew meanwhile, start the instance again: it is planned of what there is then"
	}
	return &Failure{Reason: fleet.ReasonTemplateFetch, Message: what + " could not be fetched: " + why(err) + advice, Err: err}
}

func why(err error) string {
	if m := errs.MessageOf(err); m != errs.MessageOf(nil) {
		return m
	}
	return "its source does not answer or sent damaged content"
}

// failure words trouble with the filesystem; nil stays nil.
func failure(ctx context.Context, what string, err error) error {
	var known *Failure
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errs.Wrap("workspace.Build", ctx.Err())
	case errors.As(err, &known):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &Failure{Reason: fleet.ReasonDiskFull, Message: fleet.ReasonDiskFull.Text(), Err: err}
	}
	var e *fs.PathError
	var of *os.LinkError
	switch {
	case errors.As(err, &e):
		what += ": " + e.Path + ": " + e.Err.Error()
	case errors.As(err, &of):
		what += ": " + of.New + ": " + of.Err.Error()
	}
	return &Failure{Reason: fleet.ReasonPrepareFailed, Message: what, Err: err}
}
