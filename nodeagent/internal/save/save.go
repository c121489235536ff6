// Package save reads those files of a running instance that are worth keeping in a
// template: its configuration. What its world, its libraries and its caches are stays
// where it is, and is reported.
//
// Invariants:
//   - Nothing outside the instance's directory is read, whatever links it holds, and
//     nothing that is no plain file is opened.
//   - What is as templates and patches made it is left out or becomes theirs again,
//     placeholders included: what is saved is what the instance changed.
//   - A file that is changed while it is read is read again, or left out: half of one
//     state and half of another is no configuration.
//   - A file from which a secret cannot be taken, in whatever spelling, is left out.
//   - The work is bounded: by entries, depth, the size of a file and of all together.
//   - The report comes last: an archive without it is not whole.
package save

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
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/render"
)

const (
	maxFile    = 1 << 20
	maxTotal   = 64 << 20
	maxEntries = 5000
	maxDepth   = 24
	// readTries is how often a file is read that is changed meanwhile, readPause the time
	// between two readings.
	readTries = 3
	readPause = 50 * time.Millisecond
	// tick is more than what a filesystem's clock advances by.
	tick = 20 * time.Millisecond
	// maxSkipped bounds what is listed as left out.
	maxSkipped = 500
)

// Request is what to read.
type Request struct {
	// Dir is the instance's directory.
	Dir string
	// Prefix is the directory, or file, below it to read; empty means all of it.
	Prefix string
	// Original is what a file was made of here.
	Original func(ctx context.Context, name string) (render.Original, error)
	// Values are the placeholder values of the instance.
	Values map[string]string
	// Secrets are texts that must not leave the node.
	Secrets []Secret
	// Standing is asked at the end whether the instance still runs; an error ends the
	// archive without its report.
	Standing func() error
	// afterRead is called when a file was read; nil but in tests.
	afterRead func(name string)
	// now is the time; nil is the clock's.
	now func() time.Time
}

// Write writes the files as a tar archive, its last entry being the report, under
// client.ExportReportName. Errors: Invalid for a prefix that leads out, NotFound when there
// is nothing, Standing's, and those of w.
func Write(ctx context.Context, w io.Writer, r Request) error {
	if r.Prefix != "" && !fleet.SafePath(r.Prefix) {
		return errs.Field("prefix", "%q is not a path inside the directory", r.Prefix)
	}
	if r.now == nil {
		r.now = time.Now
	}
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return errs.As(errs.NotFound, "save.Write", err)
	}
	defer root.Close()
	k := &keeper{request: r, root: root, out: tar.NewWriter(w), report: client.ExportReport{Skipped: []client.SkippedFile{}}}
	from := "."
	if r.Prefix != "" {
		from = r.Prefix
	}
	fi, err := root.Lstat(from)
	if err != nil {
		return errs.New(errs.NotFound, "the instance has no %s", r.Prefix)
	}
	if err := k.visit(ctx, from, fi); err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if err := r.Standing(); err != nil {
		return err
	}
	return k.finish()
}

// errEnough ends the walk: a bound was met and told.
var errEnough = errors.New("a bound was met")

// keeper walks one directory.
type keeper struct {
	request Request
	root    *os.Root
	out     *tar.Writer
	report  client.ExportReport
	entries int
	bytes   int64
}

// skip reports what is left out.
func (k *keeper) skip(name, why string) error {
	if len(k.report.Skipped) == maxSkipped {
		k.report.MoreSkipped++
		return nil
	}
	k.report.Skipped = append(k.report.Skipped, client.SkippedFile{Path: name, Reason: why})
	return nil
}

func (k *keeper) visit(ctx context.Context, name string, fi fs.FileInfo) error {
	if ctx.Err() != nil {
		return errs.Wrap("save.Write", ctx.Err())
	}
	if k.entries++; k.entries > maxEntries {
		k.report.Truncated = fmt.Sprintf("there are more than %d files and directories: name a directory of them", maxEntries)
		return errEnough
	}
	switch {
	case name != "." && strings.HasPrefix(path.Base(name), ".orrery"): // the agent's own
		return nil
	case k.tells(name):
		return k.skip("(a name that holds a secret)", "its name holds a secret, or what may be one")
	case name != "." && !fleet.SafePath(name):
		return k.skip(strings.ToValidUTF8(name, "?"), "its name cannot be in a template")
	case fi.IsDir():
		return k.directory(ctx, name)
	case fi.Mode()&fs.ModeSymlink != 0:
		return k.skip(name, "a link")
	case !fi.Mode().IsRegular():
		return k.skip(name, "not a file")
	}
	return k.file(ctx, name, fi)
}

// tells reports whether a name may hold a secret.
func (k *keeper) tells(name string) bool {
	r := readingOf("", []byte(name))
	return slices.ContainsFunc(k.request.Secrets, func(s Secret) bool { return !s.Withheld && r.holds(s) })
}

func (k *keeper) directory(ctx context.Context, name string) error {
	if strings.Count(name, "/") >= maxDepth {
		return k.skip(name, fmt.Sprintf("more than %d directories deep", maxDepth))
	}
	entries, err := k.list(name)
	if err != nil {
		return k.skip(name, "cannot be read")
	}
	if name != "." && isWorld(entries) {
		return k.skip(name, "a world")
	}
	for _, e := range entries {
		at := path.Join(name, e.Name())
		fi, err := k.root.Lstat(at)
		if err != nil { // it went meanwhile
			continue
		}
		if err := k.visit(ctx, at, fi); err != nil {
			return err
		}
	}
	return nil
}

// list reads a directory in order, and no more of it than is looked at anyway.
func (k *keeper) list(name string) ([]fs.DirEntry, error) {
	d, err := k.root.Open(name)
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

// isWorld reports whether a directory is a world of a game: it says so by a file or by
// a directory of regions.
func isWorld(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == "level.dat" && !e.IsDir() || e.Name() == "region" && e.IsDir()
	})
}

func (k *keeper) file(ctx context.Context, name string, fi fs.FileInfo) error {
	if fi.Size() > maxFile {
		return k.skip(name, "larger than 1 MiB")
	}
	content, err := k.read(ctx, name)
	switch {
	case ctx.Err() != nil:
		return errs.Wrap("save.Write", ctx.Err())
	case errors.Is(err, fs.ErrNotExist): // it went meanwhile
		return nil
	case errors.Is(err, errChanging):
		return k.skip(name, "changes while it is read: save it again, alone")
	case err != nil:
		return k.skip(name, "cannot be read")
	case len(content) > maxFile:
		return k.skip(name, "larger than 1 MiB")
	case bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content):
		return k.skip(name, "not text")
	}
	of, err := k.request.Original(ctx, name)
	switch {
	case ctx.Err() != nil:
		return errs.Wrap("save.Write", ctx.Err())
	case err != nil:
		return k.skip(name, "its template cannot be read now, which knows its placeholders")
	case of.Made != nil && bytes.Equal(content, of.Made), of.SHA256 != "" && hashOf(content) == of.SHA256:
		k.report.Unchanged++
		return nil
	case of.Made != nil:
		content = render.Restore(name, content, of, k.request.Values)
		if bytes.Equal(content, of.Template) {
			k.report.Unchanged++
			return nil
		}
	}
	content, ok := mask(name, content, of.Template, k.request.Secrets)
	if !ok {
		return k.skip(name, "holds a secret, or what may be one")
	}
	if k.bytes += int64(len(content)); k.bytes > maxTotal {
		k.report.Truncated = fmt.Sprintf("the files come to more than %d MiB: name a directory of them", maxTotal>>20)
		return errEnough
	}
	k.report.Files++
	return k.put(name, fi.Mode().Perm(), content)
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// errChanging is that a file was changed whenever it was read.
var errChanging = errors.New("it changes")

// read reads a plain file whole; one byte more than may be tells that it has grown.
func (k *keeper) read(ctx context.Context, name string) ([]byte, error) {
	for try := 1; ; try++ {
		content, err := k.readOnce(name)
		if !errors.Is(err, errChanging) || try == readTries || !pause.For(ctx, readPause) {
			return content, err
		}
	}
}

func (k *keeper) readOnce(name string) ([]byte, error) {
	f, err := k.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	began := k.request.now()
	before, err := stateOf(f)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if k.request.afterRead != nil {
		k.request.afterRead(name)
	}
	if after, err := stateOf(f); err != nil || after != before || before.fresh(began) {
		return nil, errors.Join(err, errChanging)
	}
	return content, nil
}

// state is what differs of a file once it was written to. One that another was put in
// the place of is whole as it was.
type state struct {
	size     int64
	modified unix.Timespec
}

// fresh reports whether a file was written to a moment ago: the next write may get the
// same time. now is a time before its state was looked at, since any later one does not tell
// when that write was.
func (s state) fresh(now time.Time) bool {
	age := now.Sub(time.Unix(s.modified.Unix()))
	return age >= 0 && age < tick
}

// stateOf is a plain file's; fs.ErrInvalid for another.
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

func (k *keeper) put(name string, mode fs.FileMode, content []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), Format: tar.FormatPAX}
	if err := k.out.WriteHeader(h); err != nil {
		return errs.As(errs.Unavailable, "save.put", err)
	}
	_, err := k.out.Write(content)
	return errs.As(errs.Unavailable, "save.put", err)
}

// finish writes the report.
func (k *keeper) finish() error {
	b, err := json.Marshal(k.report)
	if err != nil {
		return errs.As(errs.Internal, "save.finish", err)
	}
	if err := k.put(client.ExportReportName, 0o644, b); err != nil {
		return err
	}
	return errs.As(errs.Unavailable, "save.finish", k.out.Close())
}
