// Package workspace builds the directory an instance runs in. It writes the layers of the
// plan in order, where a later layer wins, and replaces placeholders in the listed files.
//
// Invariants:
//   - A directory appears completely or not at all: it is built under a temporary name and
//     renamed. A failed build leaves nothing behind.
//   - Nothing is written outside the directory, whatever symlinks a template or a server
//     has created in it.
//   - A static directory is built once and kept. Later starts write the layers over it. They
//     keep existing files, or with Override only protected ones, and replace each file as
//     a whole. The builder never removes a static directory, also not one that another
//     process has created meanwhile. It flushes the files to the disk before it renames the
//     directory: an empty file after a power failure would be kept forever.
//   - Files are copies of blobs, never links: a server may write to its files, and must not
//     reach the cache. Cloned blocks are copied on write.
//   - Only the instance's user may enter its directory. The parent directory of a container's
//     directory is private too, because root in a container may open up the directory itself.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// Builder builds directories below one data directory. It is safe for concurrent use.
type Builder struct {
	data  string
	cache *blobcache.Cache
	// sync flushes a file or directory.
	sync func(*os.File) error
	// Reachable says that instances reach their directories whatever the modes of the parents are. Else
	// the builder lets their users pass through the agent's own directories.
	Reachable bool
	// Log receives which directories were given to another user. Nil discards that.
	Log *slog.Logger
}

// New returns a builder for the instances below dataDir.
func New(dataDir string, cache *blobcache.Cache) *Builder {
	return &Builder{data: dataDir, cache: cache, sync: (*os.File).Sync}
}

// Failure is the error of a build, with the reason that the instance reports.
type Failure struct {
	Reason  fleet.Reason
	Message string
	Err     error
}

// Error returns the message and the cause.
func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Message
	}
	return f.Message + ": " + f.Err.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Request says what to build.
type Request struct {
	Placement fleet.Placement
	Plan      fleet.Plan
	// Values are the placeholder values.
	Values map[string]string
	// UID is the user and group that own the directory. 0 means the user of Plan.Confine.
	UID int
	// Absent says that the static directory did not exist when it was claimed. It is an
	// error if it exists after the build, because another process has created it.
	Absent bool
}

// The directories below the data directory that hold the instances' directories.
const (
	staticDir = "static"
	// runningDir holds those of dynamic instances. Users of instances may pass through it.
	runningDir = "running"
	// containedDir holds those of dynamic instances in containers. Only the agent and the
	// container engine, which mounts them, may pass through it.
	containedDir = "containers"
)

// Dir returns the path of an instance's directory, whether it exists or not.
func (b *Builder) Dir(p fleet.Placement, plan fleet.Plan) string {
	switch {
	case plan.Static:
		return filepath.Join(b.StaticRoot(), string(p.Group), p.Name)
	case plan.Runtime == fleet.RuntimeDocker:
		return filepath.Join(b.data, containedDir, string(p.Instance))
	}
	return filepath.Join(b.data, runningDir, string(p.Instance))
}

// StaticRoot returns the directory that holds static instances, as GROUP/NAME.
func (b *Builder) StaticRoot() string { return filepath.Join(b.data, staticDir) }

// Build builds the directory. It returns notes for the operator: unknown placeholders, and
// listed files that are missing or not text. Errors are Failures, or have the Kind Canceled.
func (b *Builder) Build(ctx context.Context, r Request) (notes []string, err error) {
	rules := render.RulesOf(r.Plan, r.Values)
	tree, err := b.merge(ctx, r.Plan.Layers, rules)
	if err != nil {
		return nil, err
	}
	defer b.cache.Pin(digests(r.Plan.Layers), append(tree.entries(), artifactEntry(r.Plan)...))()
	defer func() {
		if err == nil {
			for i, l := range r.Plan.Layers {
				b.cache.MarkUsed(l.Digest, tree.effective(tree.layers[i]))
			}
		}
	}()
	dir := b.Dir(r.Placement, r.Plan)
	if r.Plan.Static && !r.Absent {
		switch there, err := exists(dir); {
		case err != nil:
			return nil, failure(ctx, "the directory cannot be examined", err)
		case there:
			if err := b.setParentModes(r, dir); err != nil {
				return nil, failure(ctx, "the permissions of the parent directories cannot be set", err)
			}
			return b.apply(ctx, r, rules, tree, dir, false)
		}
	}
	staging := stagingOf(dir, r.Placement)
	if !r.Plan.Static && len(tree.files)+len(rules.Named()) == 0 { // an empty directory needs no temporary name
		staging = dir
	}
	if err := makeEmpty(staging); err != nil {
		return nil, failure(ctx, "the directory could not be created", err)
	}
	if err := b.setParentModes(r, dir); err != nil {
		return nil, failure(ctx, "the permissions of the parent directories cannot be set", err)
	}
	notes, err = b.apply(ctx, r, rules, tree, staging, true)
	if err == nil && r.Plan.Static {
		err = failure(ctx, "the directory could not be flushed to the disk", b.flush(ctx, staging, func() {}))
	}
	if err == nil {
		err = failure(ctx, "the directory could not be renamed to its final path", moveIntoPlace(staging, dir, r.Plan.Static))
	}
	if err != nil {
		return nil, errors.Join(err, removeAll(staging))
	}
	if r.Plan.Static {
		return notes, failure(ctx, "the parent directories could not be flushed to the disk", b.flushParents(dir))
	}
	return notes, nil
}

func makeEmpty(dir string) error {
	if err := errors.Join(removeAll(dir), os.MkdirAll(filepath.Dir(dir), parentMode)); err != nil {
		return err
	}
	spreadSubdirs(filepath.Dir(dir))
	return os.Mkdir(dir, instanceMode)
}

// stagingOf returns the temporary path of a directory. It contains the node's name, because
// several nodes may share the storage.
func stagingOf(dir string, p fleet.Placement) string {
	return filepath.Join(filepath.Dir(dir), ".new-"+filepath.Base(dir)+"-"+string(p.Node))
}

// moveIntoPlace renames a built directory. It replaces what an earlier generation of a dynamic
// instance left, but no existing static directory.
func moveIntoPlace(staging, dir string, static bool) error {
	if staging == dir {
		return nil
	}
	if !static {
		return errors.Join(removeAll(dir), os.Rename(staging, dir))
	}
	err := os.Rename(staging, dir)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR) {
		return &Failure{Reason: fleet.ReasonDirectoryTaken, Err: err, Message: fmt.Sprintf(
			"another process created %s during the build, so it was not changed; start the instance again when that process has ended", dir)}
	}
	return err
}

// Remove removes a dynamic instance's directory. It keeps a static one.
func (b *Builder) Remove(p fleet.Placement, plan fleet.Plan) error {
	if plan.Static {
		return nil
	}
	dir := b.Dir(p, plan)
	return errs.WrapAs(errs.Unavailable, "workspace.Remove", errors.Join(removeAll(dir), removeAll(stagingOf(dir, p))))
}

// Exists reports whether an instance has a directory.
func (b *Builder) Exists(p fleet.Placement, plan fleet.Plan) bool {
	there, err := exists(b.Dir(p, plan))
	return err == nil && there
}

// exists returns false only if the path certainly does not exist.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// merge reads the manifests of the layers and merges them into one tree.
func (b *Builder) merge(ctx context.Context, layers []fleet.PlanLayer, rules render.Rules) (tree, error) {
	t := tree{files: map[string]content.ManifestEntry{}, dirs: map[string]bool{}, parts: map[string][]part{}}
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
			if e.Kind == content.FileRegular && rules.Merges(e.Path) {
				t.parts[e.Path] = append(t.parts[e.Path], part{l.String(), e})
			}
		}
	}
	t.removeBelow(claim.FileName) // the lock file names the directory's owner; templates must not replace it
	t.remove(claim.FileName)
	// A link of one layer may lead out of the directory through a link of another layer.
	if err := (content.Manifest{Entries: slices.Collect(maps.Values(t.files))}).CheckLinks(); err != nil {
		return t, &Failure{Reason: fleet.ReasonPrepareFailed, Message: "the templates in combination: " + errs.MessageOf(err), Err: err}
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
		advice = "; if the template was deleted or published again meanwhile, start the instance again to use the current version"
	}
	return &Failure{Reason: fleet.ReasonTemplateFetch, Message: what + " could not be fetched: " + causeText(err) + advice, Err: err}
}

func causeText(err error) string {
	if m := errs.MessageOf(err); m != errs.MessageOf(nil) {
		return m
	}
	return "its source does not answer or sent corrupt content"
}

// failure turns a filesystem error into a Failure; nil stays nil.
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
