package source

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
	"github.com/orreryhq/orrery/libs/fleet"
)

// errChanging says that the tree changed while it was read: scan again later.
var errChanging = errors.New("the directory changes while it is read")

// stamp tells an unchanged file from a changed one without reading it.
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

// hashed is what is known of a file since it was last read.
type hashed struct {
	stamp   stamp
	content fleet.Content
}

// writing says that somebody has a file open for writing.
type writing struct{ path string }

// Error implements error.
func (w writing) Error() string { return w.path + " is open for writing" }

// settled is how old a file's last change must be where it cannot be known whether
// somebody has it open.
const settled = 2 * time.Second

// scanner turns directories into manifests, reading only what changed. It is
// used from one goroutine.
type scanner struct {
	seen   map[string]hashed // by absolute path
	limits fleet.ManifestLimits
	now    func() time.Time
	lease  func(*os.File) (quiet, known bool)
}

// storage is where the files of a scan are stored.
type storage interface {
	// stored reports whether content is.
	stored(context.Context, fleet.Content) (bool, error)
	// add stores what a file holds, up to a limit of bytes.
	add(ctx context.Context, r io.Reader, limit int64) (fleet.Content, error)
}

// tree is one template's directory while it is read; nothing outside it is.
type tree struct {
	*scanner
	storage
	root *os.Root
	path string
}

// scan reads one template's directory: changed files into a storage, the tree into a
// manifest. errChanging when a file changed under the reading, writing when somebody is
// about to change one, Canceled with ctx.
func (s *scanner) scan(ctx context.Context, dir string, ref fleet.TemplateRef, into storage) (fleet.Manifest, error) {
	var m fleet.Manifest
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
			return errs.As(errs.Canceled, "source.scan", ctx.Err())
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

// vanished turns the disappearance of something listed into a sign of change.
func vanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errChanging
	}
	return errs.As(errs.Unavailable, "source.scan", err)
}

func (t *tree) entry(ctx context.Context, p string) (*fleet.ManifestEntry, error) {
	fi, err := t.root.Lstat(p)
	if err != nil {
		return nil, vanished(err)
	}
	e := &fleet.ManifestEntry{Path: p, Mode: uint32(fi.Mode().Perm())}
	switch mode := fi.Mode(); {
	case mode.IsDir():
		return t.dirEntry(p, e)
	case mode&fs.ModeSymlink != 0:
		e.Kind, e.Mode = fleet.FileSymlink, 0
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

// dirEntry keeps empty directories; others follow from what is in them.
func (t *tree) dirEntry(p string, e *fleet.ManifestEntry) (*fleet.ManifestEntry, error) {
	f, err := t.root.Open(p)
	if err != nil {
		return nil, vanished(err)
	}
	defer f.Close()
	if names, _ := f.Readdirnames(1); len(names) > 0 {
		return nil, nil
	}
	e.Kind = fleet.FileDir
	return e, nil
}

// file stores a file's content, unless it is known and stored, and makes sure
// that it did not change while it was read and nobody is about to change it.
func (t *tree) file(ctx context.Context, p string, fi fs.FileInfo) (fleet.Content, error) {
	full := filepath.Join(t.path, p)
	if known, ok := t.seen[full]; ok && known.stamp == stampOf(fi) {
		if there, err := t.stored(ctx, known.content); there || err != nil {
			return known.content, err
		}
	}
	var none fleet.Content
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

// lease asks the kernel whether anybody has a file open for writing. known is false
// where it does not tell: on some file systems, and for files of other users.
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
