package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

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

// scanner turns directories into manifests, reading only what changed. It is
// used from one goroutine.
type scanner struct {
	// stored reports whether content is stored; add stores what a file holds, up to a
	// limit of bytes. add is set for the time of a scan.
	stored func(fleet.Content) bool
	add    func(r io.Reader, limit int64) (fleet.Content, error)
	seen   map[string]hashed // by absolute path
	limits fleet.ManifestLimits
}

// scan reads one template's directory: changed files into the blob store through add,
// the tree into a manifest. errChanging when a file changed under the reading.
func (s *scanner) scan(root string, add func(io.Reader, int64) (fleet.Content, error)) (fleet.Manifest, error) {
	var m fleet.Manifest
	s.add = add
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return vanished(err)
		}
		if p == root {
			return nil
		}
		if len(m.Entries) > s.limits.Entries {
			return errs.New(errs.TooLarge, "%s has more than %d entries", root, s.limits.Entries)
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return errs.As(errs.Internal, "source.scan", err)
		}
		entry, err := s.entry(p, filepath.ToSlash(rel), d)
		if err != nil {
			return err
		}
		if entry != nil {
			m.Entries = append(m.Entries, *entry)
		}
		return nil
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

func (s *scanner) entry(p, rel string, d fs.DirEntry) (*fleet.ManifestEntry, error) {
	fi, err := d.Info()
	if err != nil {
		return nil, vanished(err)
	}
	e := &fleet.ManifestEntry{Path: rel, Mode: uint32(fi.Mode().Perm())}
	switch mode := fi.Mode(); {
	case mode.IsDir():
		return s.dirEntry(p, e)
	case mode&fs.ModeSymlink != 0:
		e.Kind, e.Mode = fleet.FileSymlink, 0
		if e.Target, err = os.Readlink(p); err != nil {
			return nil, vanished(err)
		}
		return e, nil
	case mode.IsRegular():
		c, err := s.file(p, fi)
		e.Size, e.SHA256, e.Chunks = c.Size, c.SHA256, c.Chunks
		return e, err
	}
	return nil, errs.New(errs.Invalid, "%s is neither a file, a directory nor a link: a template cannot hold it", p)
}

// dirEntry keeps empty directories; others follow from what is in them.
func (s *scanner) dirEntry(p string, e *fleet.ManifestEntry) (*fleet.ManifestEntry, error) {
	f, err := os.Open(p)
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
// that it did not change while it was read.
func (s *scanner) file(p string, fi fs.FileInfo) (fleet.Content, error) {
	if known, ok := s.seen[p]; ok && known.stamp == stampOf(fi) && s.stored(known.content) {
		return known.content, nil
	}
	var none fleet.Content
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return none, vanished(err)
	}
	defer f.Close()
	c, err := s.add(f, s.limits.FileBytes)
	if err != nil {
		return none, errs.Wrap(fmt.Sprintf("source.scan %s", p), err)
	}
	after, err := f.Stat()
	if err != nil {
		return none, vanished(err)
	}
	if stampOf(after) != stampOf(fi) || c.Size != fi.Size() {
		return none, errChanging
	}
	s.seen[p] = hashed{stampOf(fi), c}
	return c, nil
}
