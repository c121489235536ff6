// Package blob is a content-addressed store of files. The name of a blob is the SHA-256 of
// its content. A Medium keeps the files: a directory or a bucket.
//
//	Add ──▶ Put, Import ──▶ compressed where that saves enough ──▶ Medium
//	Open, Lookup ◀── verified by hash ◀── Medium, then Elsewhere
//
// Add stores files of any size. It splits a large file into chunks, which are blobs, and
// also stores the list of the chunks: the recipe, by which Open reads the file.
//
// Invariants: A blob appears whole or not at all, and never changes. The same content is
// stored once. If a caller asks for a blob that a garbage collection has condemned, the
// store restores it first. A blob whose content does not match its name is never served:
// the store sets it aside, so that it is fetched or published again. Several processes may
// share a medium.
//
// Reads fetch a missing blob from Elsewhere, verify it and store it. Concurrent readers of
// a blob share one fetch. Has, Here and RecipeHere look only in this store.
package blob

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/singleflight"
)

// MaxBytes is the largest blob, in bytes, that Put writes and ReadAll reads.
const MaxBytes = content.MaxManifestBytes

// Store keeps blobs in a medium. It is safe for concurrent use, also by several processes.
type Store struct {
	Medium
	spool string
	enc   *zstd.Encoder
	// elsewhere supplies missing blobs; may be nil.
	elsewhere Elsewhere
	flights   *singleflight.Group
	// damaged is called for each damaged file that a read finds; may be nil.
	damaged func(f File, path string)
	// doubts is true when the medium does not verify its files itself.
	doubts bool

	mu sync.Mutex
	// verified holds the stamps of the files whose hash this process has checked.
	verified map[string]stamp
}

// Open opens a store in a directory and creates the directory if necessary.
func Open(dir string) (*Store, error) {
	d, err := newDisk(dir)
	if err != nil {
		return nil, err
	}
	s, err := New(dir, d)
	if err != nil {
		return nil, err
	}
	s.doubts = true
	return s, nil
}

// New returns a store that keeps its files in a medium. dir is a local directory for
// temporary files.
func New(dir string, m Medium) (*Store, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "blob.New", err)
	}
	s := &Store{Medium: m, spool: filepath.Join(dir, incoming), enc: enc, flights: singleflight.New(fetches), verified: map[string]stamp{}}
	return s, errs.WrapAs(errs.Unavailable, "blob.New", errors.Join(closeDir(dir), openSpool(s.spool)))
}

// closeDir creates a directory and removes all permissions of other users, because it holds
// the content of all groups. The directory's Unix group keeps its permissions, because
// replicas that share the directory may run as several users. If the directory belongs to
// another user, closeDir leaves it as it is.
func closeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil || fi.Mode()&0o007 == 0 {
		return err
	}
	if err := os.Chmod(dir, fi.Mode()&^0o007); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// Spool returns the directory for temporary files. The store removes files that an
// interrupted process left there.
func (s *Store) Spool() string { return s.spool }

// Put stores a blob and returns its name. An existing blob is verified once per process,
// and written again if it is damaged. Put returns Exhausted when the medium is full,
// TooLarge beyond MaxBytes and Canceled with ctx.
func (s *Store) Put(ctx context.Context, b []byte) (sum string, err error) {
	if len(b) > MaxBytes {
		return "", errs.New(errs.TooLarge, "%d MiB are too much for one blob", len(b)>>20)
	}
	if err := ctx.Err(); err != nil {
		return "", errs.Wrap("blob.Put", err)
	}
	f := File{Sum: content.DigestOf(b), Size: int64(len(b))}
	there, err := s.Medium.Has(ctx, f)
	if err != nil || there && s.believes(ctx, f.Sum) {
		return f.Sum, errs.Wrap("blob.Put", err)
	}
	if packed := s.pack(b); packed != nil {
		f.Form, b = Packed, packed
	}
	return f.Sum, errs.Wrap("blob.Put", s.Write(ctx, f, b))
}

// believes reports whether a stored blob has the right hash.
func (s *Store) believes(ctx context.Context, sum string) bool {
	if !s.doubts {
		return true
	}
	b, err := s.Here(ctx, sum)
	return err == nil && b.Close() == nil
}

// Has reports whether a blob of that size is stored, or a large file with all its chunks.
// It restores condemned files first. It returns Unavailable when the medium does not answer
// and Canceled with ctx.
func (s *Store) Has(ctx context.Context, sum string, size int64) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, errs.Wrap("blob.Has", err)
	}
	if !content.ValidDigest(sum) {
		return false, nil
	}
	if there, err := s.HasWhole(ctx, sum, size); there || err != nil {
		return there, err
	}
	if there, err := s.Medium.Has(ctx, File{Sum: sum, Form: Joined, Size: size}); !there || err != nil {
		return false, errs.Wrap("blob.Has", err)
	}
	c, err := s.RecipeHere(ctx, sum)
	if errs.Is(err, errs.NotFound) || err == nil && c.Size != size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, b := range c.Chunks {
		if there, err := s.HasWhole(ctx, b.SHA256, b.Size); !there || err != nil {
			return false, err
		}
	}
	return true, nil
}

// HasWhole is like Has, but ignores recipes.
func (s *Store) HasWhole(ctx context.Context, sum string, size int64) (bool, error) {
	there, err := s.Medium.Has(ctx, File{Sum: sum, Size: size})
	return there, errs.Wrap("blob.Has", err)
}

// stamp detects that a file has changed, without reading it.
type stamp struct {
	size, mtime int64
	inode       uint64
}

func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stamp{}, err
	}
	return stamp{st.Size, st.Mtim.Nano(), st.Ino}, nil
}
