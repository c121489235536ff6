// Package blob is a content-addressed store of files on disk: a blob's name is
// the SHA-256 of its content.
//
//	<ab>/<sum>          a blob as it is
//	<ab>/<sum>.zst      a blob compressed, where that saves enough
//	<ab>/<sum>.chunks   what a large file is joined from: each chunk is a blob
//	incoming/           writes under way
//	trash/<cycle>/      condemned by a collection, see package collect
//	corrupt/            what no longer fitted its name
//
// Invariants: a blob appears whole or not at all (written aside, then renamed);
// it is never changed; the same content is stored once. A blob that is wanted while it
// is condemned is taken back. A blob whose content no longer fits its name is not
// served: it is put aside, so that it is fetched or published anew. Several processes
// may share the directory.
//
// What is read and not stored here is fetched from elsewhere, verified and stored, once
// for all who want it; see Elsewhere. Has, Here and RecipeHere look here alone.
package blob

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/flight"
)

// MaxBytes bounds a blob that is written at once.
const MaxBytes = fleet.MaxManifestBytes

// Suffixes of the ways a name may be stored in.
const (
	compressed = ".zst"
	recipe     = ".chunks"
)

// Store is a directory of blobs. It is safe for concurrent use, also by several processes.
type Store struct {
	dir string
	enc *zstd.Encoder
	// elsewhere is asked for what is missing; nil asks nobody.
	elsewhere Elsewhere
	flights   *flight.Group

	mu sync.Mutex
	// verified holds the stamps of files that had their hash in this process.
	verified map[string]stamp
}

// abandoned is the age from which an unfinished write is taken for interrupted:
// longer than any write may take, since replicas may share the directory.
const abandoned = 6 * time.Hour

// Open makes the directory if need be and clears what interrupted writes left.
func Open(dir string) (*Store, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, errs.As(errs.Internal, "blob.Open", err)
	}
	s := &Store{dir: dir, enc: enc, flights: flight.New(fetches), verified: map[string]stamp{}}
	for _, d := range []string{s.incoming(), s.trash(), s.corrupt()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, errs.As(errs.Unavailable, "blob.Open", err)
		}
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
		if err := os.RemoveAll(filepath.Join(s.incoming(), e.Name())); err != nil { // a spool may be a directory
			return err
		}
	}
	return nil
}

func (s *Store) incoming() string { return filepath.Join(s.dir, "incoming") }
func (s *Store) trash() string    { return filepath.Join(s.dir, "trash") }
func (s *Store) corrupt() string  { return filepath.Join(s.dir, "corrupt") }

// Spool is a directory for what is kept while it is being read: what an interrupted
// program leaves in it is cleared in time.
func (s *Store) Spool() string { return s.incoming() }

// path is where a file of the store lies: a name with its suffix.
func (s *Store) path(file string) string { return filepath.Join(s.dir, file[:2], file) }

// Put stores a blob and returns its name. Exhausted when the disk is full, TooLarge
// beyond MaxBytes.
func (s *Store) Put(ctx context.Context, b []byte) (sum string, err error) {
	if len(b) > MaxBytes {
		return "", errs.New(errs.TooLarge, "%d MiB are too much for one blob", len(b)>>20)
	}
	if err := ctx.Err(); err != nil {
		return "", errs.Wrap("blob.Put", err)
	}
	sum = fleet.DigestOf(b)
	if s.has(sum, int64(len(b))) {
		return sum, nil
	}
	if s.rescue(sum); s.has(sum, int64(len(b))) {
		return sum, nil
	}
	if packed := s.pack(b); packed != nil {
		return sum, s.write(sum+compressed, packed)
	}
	return sum, s.write(sum, b)
}

// write makes a file of the store appear whole.
func (s *Store) write(file string, b []byte) error {
	f, err := os.CreateTemp(s.incoming(), "blob-*")
	if err != nil {
		return disk("blob.Put", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // gone already when it was renamed
	}()
	if _, err := f.Write(b); err != nil {
		return disk("blob.Put", err)
	}
	if err := f.Close(); err != nil {
		return disk("blob.Put", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.path(file)), 0o755); err != nil {
		return disk("blob.Put", err)
	}
	if err := os.Rename(f.Name(), s.path(file)); err != nil {
		return disk("blob.Put", err)
	}
	return nil
}

// disk tells a full disk from others.
func disk(op string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &errs.Error{Op: op, Kind: errs.Exhausted, Err: err, Message: "the disk of the templates' content is full: delete versions, or give it room"}
	}
	return errs.As(errs.Unavailable, op, err)
}

// Flush makes everything stored so far survive a power cut: one flush of the file
// system, whatever was written.
func (s *Store) Flush(context.Context) error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return errs.As(errs.Unavailable, "blob.Flush", err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return disk("blob.Flush", err)
	}
	return nil
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
	if s.has(sum, size) {
		return true, nil
	}
	s.rescue(sum)
	if s.has(sum, size) {
		return true, nil
	}
	c, err := s.RecipeHere(ctx, sum)
	if errs.Is(err, errs.NotFound) || err == nil && c.Size != size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, b := range c.Chunks {
		if there, err := s.Has(ctx, b.SHA256, b.Size); !there || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (s *Store) has(sum string, size int64) bool {
	if fi, err := os.Stat(s.path(sum)); err == nil && fi.Size() == size {
		return true
	}
	f, err := os.Open(s.path(sum + compressed))
	if err != nil {
		return false
	}
	defer f.Close()
	got, err := unpackedSize(f)
	return err == nil && got == size
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
