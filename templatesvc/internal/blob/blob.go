// Package blob is a content-addressed store of files on disk: a blob's name is
// the SHA-256 of its content.
//
// Invariants: a blob appears whole or not at all (written aside, then renamed);
// it is never changed; the same content is stored once. A blob whose content no
// longer fits its name is not served by Verify's callers: it is removed, so that
// the next publish writes it anew.
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Store is a directory of blobs. It is safe for concurrent use, also by several processes.
type Store struct{ dir string }

// abandoned is the age from which an unfinished write is taken for interrupted:
// longer than any upload may take, since replicas may share the directory.
const abandoned = 6 * time.Hour

// Open makes the directory if need be and clears what interrupted writes left.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	if err := os.MkdirAll(s.incoming(), 0o755); err != nil {
		return nil, errs.As(errs.Unavailable, "blob.Open", err)
	}
	if err := s.clear(time.Now().Add(-abandoned)); err != nil {
		return nil, errs.As(errs.Unavailable, "blob.Open", err)
	}
	return s, nil
}

// clear removes unfinished writes that nobody has touched since.
func (s *Store) clear(since time.Time) error {
	entries, err := os.ReadDir(s.incoming())
	if err != nil {
		return err
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || fi.ModTime().After(since) {
			continue // another replica's, or gone meanwhile
		}
		if err := os.Remove(filepath.Join(s.incoming(), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *Store) incoming() string { return filepath.Join(s.dir, "incoming") }

// Spool is a directory for what is kept while it is being read: what an interrupted
// program leaves in it is cleared in time.
func (s *Store) Spool() string { return s.incoming() }

// path is where a blob lies. Only for valid names.
func (s *Store) path(sum string) string { return filepath.Join(s.dir, sum[:2], sum) }

// Valid reports whether sum has the form of a blob's name.
func Valid(sum string) bool { return fleet.ValidDigest(sum) }

// Has reports whether a blob is stored with the size it should have.
func (s *Store) Has(sum string, size int64) bool {
	fi, err := os.Stat(s.path(sum))
	return err == nil && fi.Size() == size
}

// Put stores everything r yields and returns its name and size. Exhausted when
// more than limit bytes come.
func (s *Store) Put(r io.Reader, limit int64) (sum string, size int64, err error) {
	f, err := os.CreateTemp(s.incoming(), "blob-*")
	if err != nil {
		return "", 0, errs.As(errs.Unavailable, "blob.Put", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // gone already when it was renamed
	}()
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(r, limit+1))
	if err != nil {
		return "", 0, errs.As(errs.Unavailable, "blob.Put", err)
	}
	if size > limit {
		return "", 0, errs.New(errs.TooLarge, "the file is larger than %d MiB", limit>>20)
	}
	sum = hex.EncodeToString(h.Sum(nil))
	if s.Has(sum, size) {
		return sum, size, nil
	}
	if err := os.MkdirAll(filepath.Dir(s.path(sum)), 0o755); err != nil {
		return "", 0, errs.As(errs.Unavailable, "blob.Put", err)
	}
	if err := f.Close(); err != nil {
		return "", 0, errs.As(errs.Unavailable, "blob.Put", err)
	}
	if err := os.Rename(f.Name(), s.path(sum)); err != nil {
		return "", 0, errs.As(errs.Unavailable, "blob.Put", err)
	}
	return sum, size, nil
}

// Flush makes everything stored so far survive a power cut: one flush of the file
// system, whatever was written.
func (s *Store) Flush() error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return errs.As(errs.Unavailable, "blob.Flush", err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return errs.As(errs.Unavailable, "blob.Flush", err)
	}
	return nil
}

// Open opens a blob for reading. NotFound when it is not stored, Malformed when
// the name is none.
func (s *Store) Open(sum string) (*os.File, error) {
	if !Valid(sum) {
		return nil, errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	f, err := os.Open(s.path(sum))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.NotFound, "blob %s is not stored here", sum)
	}
	if err != nil {
		return nil, errs.As(errs.Unavailable, "blob.Open", err)
	}
	return f, nil
}

// ReadAll reads a small blob and checks its content against its name. A blob
// that does not fit is removed and the error is Unavailable.
func (s *Store) ReadAll(sum string) ([]byte, error) {
	f, err := s.Open(sum)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "blob.ReadAll", err)
	}
	if got := sha256.Sum256(b); hex.EncodeToString(got[:]) != sum {
		_ = os.Remove(s.path(sum))
		return nil, errs.As(errs.Unavailable, "blob.ReadAll", fmt.Errorf("%s was corrupt on disk and has been removed", sum))
	}
	return b, nil
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
