package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// inMemory is how much of a blob is held in memory while it comes; a larger one is
// written to the disk as it comes.
const inMemory = 4 << 20

// Import stores a blob that somebody else keeps, of at most limit bytes. Unavailable when
// what comes does not have the hash, or breaks off.
func (s *Store) Import(ctx context.Context, sum string, limit int64, r io.Reader) error {
	if !fleet.ValidDigest(sum) {
		return errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	r = io.LimitReader(r, limit+1)
	b, err := io.ReadAll(io.LimitReader(r, inMemory))
	if err != nil {
		return errs.As(errs.Unavailable, "blob.Import", err)
	}
	if len(b) < inMemory {
		if fleet.DigestOf(b) != sum {
			return errs.As(errs.Unavailable, "blob.Import", fmt.Errorf("what came as %s has another hash", sum))
		}
		_, err = s.Put(ctx, b)
		return err
	}
	f, err := os.CreateTemp(s.incoming(), "blob-*")
	if err != nil {
		return disk("blob.Import", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // gone already when it was renamed
	}()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), io.MultiReader(bytes.NewReader(b), r)); err != nil {
		return disk("blob.Import", err)
	}
	if hex.EncodeToString(h.Sum(nil)) != sum {
		return errs.As(errs.Unavailable, "blob.Import", fmt.Errorf("what came as %s has another hash", sum))
	}
	err = errors.Join(f.Close(), os.MkdirAll(filepath.Dir(s.path(sum)), 0o755), os.Rename(f.Name(), s.path(sum)))
	if err != nil {
		return disk("blob.Import", err)
	}
	return nil
}

// ID tells one directory of blobs from another: replicas that share one have the same.
func (s *Store) ID(context.Context) (string, error) {
	path := filepath.Join(s.dir, "store-id")
	for {
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 {
			return strings.TrimSpace(string(b)), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", errs.As(errs.Unavailable, "blob.ID", err)
		}
		if err := s.name(path); err != nil {
			return "", err
		}
	}
}

// name gives the directory its id, unless another process was faster.
func (s *Store) name(path string) error {
	f, err := os.CreateTemp(s.incoming(), "id-*")
	if err != nil {
		return disk("blob.ID", err)
	}
	_, err = fmt.Fprintln(f, rand.Text())
	err = errors.Join(err, f.Close())
	if err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return disk("blob.ID", err)
	}
	return nil
}
