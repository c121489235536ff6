package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/store/chunk"
)

// Add stores the content of r, and calls stored with the name of each blob that it has
// stored. It splits files of RecipeFrom bytes or more into content-defined chunks, so that
// a changed file shares most of its chunks with its previous version, and holds only a few
// chunks in memory. It returns TooLarge beyond limit bytes and Canceled with ctx. Errors of
// r without a Kind become Unavailable.
func (s *Store) Add(ctx context.Context, r io.Reader, limit int64, stored func(sum string)) (content.Content, error) {
	r = reader{ctx, r}
	head, err := io.ReadAll(io.LimitReader(r, RecipeFrom))
	if err != nil {
		return content.Content{}, failed(err)
	}
	var c content.Content
	whole := sha256.New()
	put := func(b []byte) error {
		if c.Size += int64(len(b)); c.Size > limit {
			return errs.New(errs.TooLarge, "the file is larger than %d MiB", limit>>20)
		}
		sum, err := s.Put(ctx, b)
		if err != nil {
			return errs.Wrap("blob.Add", err)
		}
		stored(sum)
		c.Chunks = append(c.Chunks, content.Chunk{SHA256: sum, Size: int64(len(b))})
		return nil
	}
	if len(head) < RecipeFrom {
		if err := put(head); err != nil {
			return content.Content{}, err
		}
		return content.Content{SHA256: c.Chunks[0].SHA256, Size: c.Size}, nil
	}
	cutter := chunk.New(io.MultiReader(bytes.NewReader(head), r))
	for {
		b, err := cutter.Next()
		if errors.Is(err, io.EOF) {
			c.SHA256 = hex.EncodeToString(whole.Sum(nil))
			return s.addRecipe(ctx, c, stored)
		}
		if err != nil {
			return content.Content{}, failed(err)
		}
		if err := put(b); err != nil {
			return content.Content{}, err
		}
		_, _ = whole.Write(b) // never fails
	}
}

// failed wraps an error of the input stream.
func failed(err error) error {
	if k := errs.KindOf(err); k != errs.Internal {
		return errs.Wrap("blob.Add", err)
	}
	return errs.WrapAs(errs.Unavailable, "blob.Add", err)
}

// addRecipe stores the recipe of a large file whose chunks are stored, and returns its
// content. If the file is already stored as one blob, from before chunks existed, it
// returns that, so that the same tree keeps its digest.
func (s *Store) addRecipe(ctx context.Context, c content.Content, stored func(sum string)) (content.Content, error) {
	if whole, err := s.Here(ctx, c.SHA256); err == nil {
		there, err := s.HasWhole(ctx, c.SHA256, c.Size)
		if err = errors.Join(err, whole.Close()); err != nil {
			return content.Content{}, errs.WrapAs(errs.Unavailable, "blob.Add", err)
		}
		if there {
			stored(c.SHA256)
			return content.Content{SHA256: c.SHA256, Size: c.Size}, nil
		}
	}
	return c, errs.Wrap("blob.Add", s.PutRecipe(ctx, c))
}

// reader stops when its context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
