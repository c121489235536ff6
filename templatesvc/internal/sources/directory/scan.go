package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// errChanging means that the tree changed during the scan, which has to be repeated later.
var errChanging = errors.New("the directory changes while it is read")

// stamp detects that a file has changed, without reading it.
type stamp struct {
	size, mtime int64
	inode       uint64
}

func stampOf(fi fs.FileInfo) stamp {
	s := stamp{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if sys, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// hashed is the result of the last read of a file.
type hashed struct {
	stamp   stamp
	content content.Content
}

// writing is the error that a file is open for writing.
type writing struct{ path string }

// Error implements error.
func (w writing) Error() string { return w.path + " is open for writing" }

// settled is the minimum age of a file's last change when the kernel cannot tell whether
// the file is open for writing.
const settled = 2 * time.Second

// scanner turns directories into manifests and reads only changed files. It is not safe for
// concurrent use.
type scanner struct {
	seen   map[string]hashed // by absolute path
	limits content.ManifestLimits
	now    func() time.Time
	lease  func(*os.File) (quiet, known bool)
}

// storage stores the files of a scan.
type storage interface {
	// stored reports whether content is already stored.
	stored(context.Context, content.Content) (bool, error)
	// add stores the content of a file, up to a limit in bytes.
	add(ctx context.Context, r io.Reader, limit int64) (content.Content, error)
}

// tree is the directory of one template during a scan. Access is confined to it.
type tree struct {
	*scanner
	storage
	root *os.Root
	path string
}

// scan reads one template's directory. It adds changed files to a storage and returns the
// manifest. It returns errChanging when a file changes during the scan, writing when one is
// open for writing, and Canceled with ctx.
func (s *scanner) scan(ctx context.Context, dir string, ref content.TemplateRef, into storage) (content.Manifest, error) {
	var m content.Manifest
	top, err := os.OpenRoot(dir)
	if err != nil {
		return m, vanished(err)
	}
	defer top.Close()
	root, err := top.OpenRoot(filepath.Join(ref.Group, ref.Name))
	if err != nil {
		return m, vanished(err)
	}
	defer root.Close()
	t := &tree{scanner: s, storage: into, root: root, path: filepath.Join(dir, ref.Group, ref.Name)}
	err = fs.WalkDir(root.FS(), ".", func(p string, _ fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return errs.WrapAs(errs.Canceled, "source.scan", ctx.Err())
		case err != nil:
			return vanished(err)
		case p == ".":
			return nil
		case len(m.Entries) > s.limits.Entries:
			return errs.New(errs.TooLarge, "%s has more than %d entries", ref, s.limits.Entries)
		}
		entry, err := t.entry(ctx, p)
		if err == nil && entry != nil {
			m.Entries = append(m.Entries, *entry)
		}
		return err
	})
	return m, err
}

// vanished returns errChanging if a listed file no longer exists.
func vanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errChanging
	}
	return errs.WrapAs(errs.Unavailable, "source.scan", err)
}

func (t *tree) entry(ctx context.Context, p string) (*content.ManifestEntry, error) {
	fi, err := t.root.Lstat(p)
	if err != nil {
		return nil, vanished(err)
	}
	e := &content.ManifestEntry{Path: p, Mode: uint32(fi.Mode().Perm())}
	switch mode := fi.Mode(); {
	case mode.IsDir():
		return t.dirEntry(p, e)
	case mode&fs.ModeSymlink != 0:
		e.Kind, e.Mode = content.FileSymlink, 0
		if e.Target, err = t.root.Readlink(p); err != nil {
			return nil, vanished(err)
		}
		return e, nil
	case mode.IsRegular():
		c, err := t.file(ctx, p, fi)
		e.Size, e.SHA256, e.Chunks = c.Size, c.SHA256, c.Chunks
		return e, err
	}
	return nil, errs.New(errs.Invalid, "%s is neither a file, a directory nor a link: a template cannot hold it", filepath.Join(t.path, p))
}

// dirEntry returns an entry for an empty directory only. Other directories follow from the
// files in them.
func (t *tree) dirEntry(p string, e *content.ManifestEntry) (*content.ManifestEntry, error) {
	f, err := t.root.Open(p)
	if err != nil {
		return nil, vanished(err)
	}
	defer f.Close()
	if names, _ := f.Readdirnames(1); len(names) > 0 {
		return nil, nil
	}
	e.Kind = content.FileDir
	return e, nil
}

// file stores the content of a file, unless it is unchanged and stored already. It fails if
// the file is open for writing or changes while it is read.
func (t *tree) file(ctx context.Context, p string, fi fs.FileInfo) (content.Content, error) {
	full := filepath.Join(t.path, p)
	if known, ok := t.seen[full]; ok && known.stamp == stampOf(fi) {
		if there, err := t.stored(ctx, known.content); there || err != nil {
			return known.content, err
		}
	}
	var none content.Content
	f, err := t.root.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return none, vanished(err)
	}
	defer f.Close()
	if same, err := f.Stat(); err != nil || stampOf(same) != stampOf(fi) {
		return none, errChanging
	}
	switch quiet, known := t.lease(f); {
	case known && !quiet:
		return none, writing{full}
	case !known && t.now().Sub(fi.ModTime()) < settled:
		return none, errChanging
	}
	c, err := t.add(ctx, f, t.limits.FileBytes)
	if err != nil {
		return none, errs.Wrap(fmt.Sprintf("source.scan %s", full), err)
	}
	after, err := f.Stat()
	if err != nil {
		return none, vanished(err)
	}
	if stampOf(after) != stampOf(fi) || c.Size != fi.Size() {
		return none, errChanging
	}
	t.seen[full] = hashed{stampOf(fi), c}
	return c, nil
}

// lease asks the kernel whether a file is open for writing, by taking a read lease on it.
// known is false if the kernel cannot tell: on some file systems, and for files of other
// users.
func lease(f *os.File) (quiet, known bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, false
	}
	var answer error
	err = raw.Control(func(fd uintptr) {
		if _, answer = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); answer == nil {
			_, answer = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	if err != nil {
		return false, false
	}
	return answer == nil, answer == nil || errors.Is(answer, unix.EAGAIN)
}
