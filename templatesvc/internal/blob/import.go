package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/fulldisk"
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
	f, err := os.CreateTemp(s.spool, "blob-*")
	if err != nil {
		return fulldisk.Error("blob.Import", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // gone already when it was taken
	}()
	h := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, h), io.MultiReader(bytes.NewReader(b), r))
	if err != nil {
		return fulldisk.Error("blob.Import", err)
	}
	if hex.EncodeToString(h.Sum(nil)) != sum {
		return errs.As(errs.Unavailable, "blob.Import", fmt.Errorf("what came as %s has another hash", sum))
	}
	return errs.Wrap("blob.Import", s.Take(ctx, File{Sum: sum, Size: size}, f))
}
