// Package configexport exports the configuration files of a running instance that are worth
// keeping in a template. It skips worlds, libraries and caches, and reports what it skipped.
//
// Invariants:
//   - It reads nothing outside the instance's directory, whatever symlinks it holds, and opens
//     only regular files.
//   - It skips unchanged files, and turns unchanged values back into the template's, with their
//     placeholders. The export contains what the instance has changed.
//   - It reads a file again that changes while it is read, or skips it. It never exports a mix of
//     two states.
//   - It skips a file if a secret in it cannot be replaced, in any encoding.
//   - The number of entries, the depth, and the sizes of files are limited.
//   - The report is the last entry. An archive without it is incomplete.
package configexport

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

const (
	maxFile    = 1 << 20
	maxTotal   = 64 << 20
	maxEntries = 5000
	maxDepth   = 24
	// readTries is how often a changing file is read, readPause the pause between attempts.
	readTries = 3
	readPause = 50 * time.Millisecond
	// clockTick is more than the resolution of a filesystem's time stamps.
	clockTick = 20 * time.Millisecond
	// maxSkipped limits the list of skipped files.
	maxSkipped = 500
)

// Request says what to export.
type Request struct {
	// Dir is the instance's directory.
	Dir string
	// Prefix is the directory or file below Dir to export; empty means all of it.
	Prefix string
	// Original returns what a file was generated from.
	Original func(ctx context.Context, name string) (render.Original, error)
	// Values are the placeholder values of the instance.
	Values map[string]string
	// Secrets are texts that must not leave the node.
	Secrets []Secret
	// CheckRunning returns an error if the instance no longer runs. Write calls it at the end,
	// before it writes the report.
	CheckRunning func() error
	// afterRead is called after each read of a file; for tests.
	afterRead func(name string)
	// now returns the time; nil means time.Now.
	now func() time.Time
}

// Write writes the files as a tar archive. The last entry, client.ExportReportName, is the
// report. It returns Invalid for a prefix outside the directory, NotFound if there is no such
// file, and the errors of CheckRunning and w.
func Write(ctx context.Context, w io.Writer, r Request) error {
	if r.Prefix != "" && !content.SafePath(r.Prefix) {
		return errs.Field("prefix", "%q is not a path inside the directory", r.Prefix)
	}
	if r.now == nil {
		r.now = time.Now
	}
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return errs.WrapAs(errs.NotFound, "configexport.Write", err)
	}
	defer root.Close()
	x := &exporter{request: r, root: root, out: tar.NewWriter(w), report: client.ExportReport{Skipped: []client.SkippedFile{}}}
	from := "."
	if r.Prefix != "" {
		from = r.Prefix
	}
	fi, err := root.Lstat(from)
	if err != nil {
		return errs.New(errs.NotFound, "the instance's directory has no %s", from)
	}
	if err := x.visit(ctx, from, fi); err != nil && !errors.Is(err, errLimit) {
		return err
	}
	if err := r.CheckRunning(); err != nil {
		return err
	}
	return x.finish()
}

// errLimit ends the walk after a limit was reached and reported.
var errLimit = errors.New("a limit was reached")

// exporter walks a directory and writes the archive.
type exporter struct {
	request Request
	root    *os.Root
	out     *tar.Writer
	report  client.ExportReport
	entries int
	bytes   int64
}

// skip reports a skipped file.
func (x *exporter) skip(name, why string) error {
	if len(x.report.Skipped) == maxSkipped {
		x.report.MoreSkipped++
		return nil
	}
	x.report.Skipped = append(x.report.Skipped, client.SkippedFile{Path: name, Reason: why})
	return nil
}

func (x *exporter) visit(ctx context.Context, name string, fi fs.FileInfo) error {
	if ctx.Err() != nil {
		return errs.Wrap("configexport.Write", ctx.Err())
	}
	if x.entries++; x.entries > maxEntries {
		x.report.Truncated = fmt.Sprintf("there are more than %d files and directories: export a subdirectory", maxEntries)
		return errLimit
	}
	switch {
	case name != "." && strings.HasPrefix(path.Base(name), ".orrery"): // the agent's own files
		return nil
	case x.nameHasSecret(name):
		return x.skip("(a name with a secret)", "its name may contain a secret")
	case name != "." && !content.SafePath(name):
		return x.skip(strings.ToValidUTF8(name, "?"), "its name is not allowed in a template")
	case fi.IsDir():
		return x.directory(ctx, name)
	case fi.Mode()&fs.ModeSymlink != 0:
		return x.skip(name, "a link")
	case !fi.Mode().IsRegular():
		return x.skip(name, "not a file")
	}
	return x.file(ctx, name, fi)
}

// nameHasSecret reports whether a name may contain a secret.
func (x *exporter) nameHasSecret(name string) bool {
	r := newSearchText("", []byte(name))
	return slices.ContainsFunc(x.request.Secrets, func(s Secret) bool { return !s.Withheld && r.mayContain(s) })
}

func (x *exporter) directory(ctx context.Context, name string) error {
	if strings.Count(name, "/") >= maxDepth {
		return x.skip(name, fmt.Sprintf("more than %d directories deep", maxDepth))
	}
	entries, err := x.list(name)
	if err != nil {
		return x.skip(name, "cannot be read")
	}
	if name != "." && isWorld(entries) {
		return x.skip(name, "a world")
	}
	for _, e := range entries {
		at := path.Join(name, e.Name())
		fi, err := x.root.Lstat(at)
		if err != nil { // it was removed meanwhile
			continue
		}
		if err := x.visit(ctx, at, fi); err != nil {
			return err
		}
	}
	return nil
}

// list reads a sorted directory, but not more than maxEntries.
func (x *exporter) list(name string) ([]fs.DirEntry, error) {
	d, err := x.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxEntries + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// isWorld reports whether a directory is a Minecraft world.
func isWorld(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == "level.dat" && !e.IsDir() || e.Name() == "region" && e.IsDir()
	})
}

func (x *exporter) file(ctx context.Context, name string, fi fs.FileInfo) error {
	if fi.Size() > maxFile {
		return x.skip(name, "larger than 1 MiB")
	}
	content, err := x.read(ctx, name)
	switch {
	case ctx.Err() != nil:
		return errs.Wrap("configexport.Write", ctx.Err())
	case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
		return nil
	case errors.Is(err, errChanging):
		return x.skip(name, "changes while it is read: export this file again")
	case err != nil:
		return x.skip(name, "cannot be read")
	case len(content) > maxFile:
		return x.skip(name, "larger than 1 MiB")
	case bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content):
		return x.skip(name, "not text")
	}
	of, err := x.request.Original(ctx, name)
	switch {
	case ctx.Err() != nil:
		return errs.Wrap("configexport.Write", ctx.Err())
	case err != nil:
		return x.skip(name, "its template, which has its placeholders, cannot be read now")
	case of.Rendered != nil && bytes.Equal(content, of.Rendered), of.SHA256 != "" && hashOf(content) == of.SHA256:
		x.report.Unchanged++
		return nil
	case of.Rendered != nil:
		content = render.Unrender(name, content, of, x.request.Values)
		if bytes.Equal(content, of.Template) {
			x.report.Unchanged++
			return nil
		}
	}
	content, ok := mask(name, content, of.Template, x.request.Secrets)
	if !ok {
		return x.skip(name, "may contain a secret")
	}
	if x.bytes += int64(len(content)); x.bytes > maxTotal {
		x.report.Truncated = fmt.Sprintf("the files are larger than %d MiB: export a subdirectory", maxTotal>>20)
		return errLimit
	}
	x.report.Files++
	return x.writeFile(name, fi.Mode().Perm(), content)
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// errChanging says that a file was changed during each read.
var errChanging = errors.New("the file changes")

// read reads a regular file, up to one byte more than maxFile.
func (x *exporter) read(ctx context.Context, name string) ([]byte, error) {
	for try := 1; ; try++ {
		content, err := x.readOnce(name)
		if !errors.Is(err, errChanging) || try == readTries || !pause.For(ctx, readPause) {
			return content, err
		}
	}
}

func (x *exporter) readOnce(name string) ([]byte, error) {
	f, err := x.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	began := x.request.now()
	before, err := stateOf(f)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if x.request.afterRead != nil {
		x.request.afterRead(name)
	}
	if after, err := stateOf(f); err != nil || after != before || before.recent(began) {
		return nil, errors.Join(err, errChanging)
	}
	return content, nil
}

// state changes when a file is written to. A file that was replaced by another one stays the
// same.
type state struct {
	size     int64
	modified unix.Timespec
}

// recent reports whether a file was modified so recently that another write could get the same
// time stamp. now must be from before the state was read.
func (s state) recent(now time.Time) bool {
	age := now.Sub(time.Unix(s.modified.Unix()))
	return age >= 0 && age < clockTick
}

// stateOf returns the state of a regular file; fs.ErrInvalid for others.
func stateOf(f *os.File) (state, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return state{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return state{}, fs.ErrInvalid
	}
	return state{st.Size, st.Mtim}, nil
}

func (x *exporter) writeFile(name string, mode fs.FileMode, content []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), Format: tar.FormatPAX}
	if err := x.out.WriteHeader(h); err != nil {
		return errs.WrapAs(errs.Unavailable, "configexport.put", err)
	}
	_, err := x.out.Write(content)
	return errs.WrapAs(errs.Unavailable, "configexport.put", err)
}

// finish writes the report.
func (x *exporter) finish() error {
	b, err := json.Marshal(x.report)
	if err != nil {
		return errs.WrapAs(errs.Internal, "configexport.finish", err)
	}
	if err := x.writeFile(client.ExportReportName, 0o644, b); err != nil {
		return err
	}
	return errs.WrapAs(errs.Unavailable, "configexport.finish", x.out.Close())
}
