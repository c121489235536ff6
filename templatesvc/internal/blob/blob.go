// Package blob is a content-addressed store of files: a blob's name is the SHA-256 of
// its content. Where the files lie is a Medium's: a directory, or a bucket.
//
//	Put, Import ──▶ packed where that saves enough ──▶ Medium
//	Open, Lookup ◀── verified by hash ◀── Medium, else elsewhere
//
// Invariants: a blob appears whole or not at all; it is never changed; the same content
// is stored once. A blob that is wanted while a collection has condemned it is taken
// back. A blob whose content no longer fits its name is not served: it is put aside, so
// that it is fetched or published anew. Several processes may share the medium.
//
// What is read and not stored here is fetched from elsewhere, verified and stored, once
// for all who want it; see Elsewhere. Has, Here and RecipeHere look here alone.
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
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/flight"
)

// MaxBytes bounds a blob that is written at once.
const MaxBytes = fleet.MaxManifestBytes

// Store keeps blobs in a medium. It is safe for concurrent use, also by several processes.
type Store struct {
	Medium
	spool string
	enc   *zstd.Encoder
	// elsewhere is asked for what is missing; nil asks nobody.
	elsewhere Elsewhere
	flights   *flight.Group
	// damaged is told what a read finds damaged; nil tells nobody.
	damaged func(f File, path string)
	// doubts says that the medium does not verify what it holds.
	doubts bool

	mu sync.Mutex
	// verified holds the stamps of files that had their hash in this process.
	verified map[string]stamp
}

// Open opens a store in a directory, which is made if need be.
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

// New makes a store in a medium. dir is a directory for what is under way.
func New(dir string, m Medium) (*Store, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, errs.As(errs.Internal, "blob.New", err)
	}
	s := &Store{Medium: m, spool: filepath.Join(dir, incoming), enc: enc, flights: flight.New(fetches), verified: map[string]stamp{}}
	return s, errs.As(errs.Unavailable, "blob.New", errors.Join(closeDir(dir), openSpool(s.spool)))
}

// closeDir makes a directory and takes other users' rights to it: the content of all groups
// is in it. Its group keeps them, because replicas that share it may be several users. One
// that belongs to another user is that user's to close.
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

// Spool is a directory for what is kept while it is being read: what an interrupted
// program leaves in it is cleared in time.
func (s *Store) Spool() string { return s.spool }

// Put stores a blob and returns its name. What lies there already is read once in a process,
// and stored anew where it does not have its hash: the right content is at hand. Exhausted when the medium is full, TooLarge
// beyond MaxBytes, Canceled with ctx.
func (s *Store) Put(ctx context.Context, b []byte) (sum string, err error) {
	if len(b) > MaxBytes {
		return "", errs.New(errs.TooLarge, "%d MiB are too much for one blob", len(b)>>20)
	}
	if err := ctx.Err(); err != nil {
		return "", errs.Wrap("blob.Put", err)
	}
	f := File{Sum: fleet.DigestOf(b), Size: int64(len(b))}
	there, err := s.Medium.Has(ctx, f)
	if err != nil || there && s.believes(ctx, f.Sum) {
		return f.Sum, errs.Wrap("blob.Put", err)
	}
	if packed := s.pack(b); packed != nil {
		f.Form, b = Packed, packed
	}
	return f.Sum, errs.Wrap("blob.Put", s.Write(ctx, f, b))
}

// believes reports whether a blob that is there has its hash.
func (s *Store) believes(ctx context.Context, sum string) bool {
	if !s.doubts {
		return true
	}
	b, err := s.Here(ctx, sum)
	return err == nil && b.Close() == nil
}

// Has reports whether a blob is stored with the size it should have, or a large file
// with all its chunks; what is condemned is taken back first. Unavailable when that
// cannot be told now, Canceled with ctx.
func (s *Store) Has(ctx context.Context, sum string, size int64) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, errs.Wrap("blob.Has", err)
	}
	if !fleet.ValidDigest(sum) {
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

// HasWhole is Has of one blob.
func (s *Store) HasWhole(ctx context.Context, sum string, size int64) (bool, error) {
	there, err := s.Medium.Has(ctx, File{Sum: sum, Size: size})
	return there, errs.Wrap("blob.Has", err)
}

// stamp tells an unchanged file from a changed one without reading it.
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
