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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
)

// inMemory is the number of bytes of an incoming blob that are buffered in memory. Larger
// blobs are written to a file while they arrive.
const inMemory = 4 << 20

// Import stores the blob sum that it reads from r, of at most limit bytes. It returns
// Unavailable when the content has another hash or r breaks off.
func (s *Store) Import(ctx context.Context, sum string, limit int64, r io.Reader) error {
	if !content.ValidDigest(sum) {
		return errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	r = io.LimitReader(r, limit+1)
	b, err := io.ReadAll(io.LimitReader(r, inMemory))
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "blob.Import", err)
	}
	if len(b) < inMemory {
		if content.DigestOf(b) != sum {
			return errs.WrapAs(errs.Unavailable, "blob.Import", fmt.Errorf("what came as %s has another hash", sum))
		}
		_, err = s.Put(ctx, b)
		return err
	}
	f, err := os.CreateTemp(s.spool, "blob-*")
	if err != nil {
		return diskerror.Error("blob.Import", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // already gone if it was taken
	}()
	h := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, h), io.MultiReader(bytes.NewReader(b), r))
	if err != nil {
		return diskerror.Error("blob.Import", err)
	}
	if hex.EncodeToString(h.Sum(nil)) != sum {
		return errs.WrapAs(errs.Unavailable, "blob.Import", fmt.Errorf("what came as %s has another hash", sum))
	}
	return errs.Wrap("blob.Import", s.Take(ctx, File{Sum: sum, Size: size}, f))
}
