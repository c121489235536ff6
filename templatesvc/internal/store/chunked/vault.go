// Package chunked stores files of any size as blobs.
//
// It splits files of 1 MiB or more into content-defined chunks, so that a changed file
// shares most of its chunks with its previous version. It holds only a few chunks in
// memory. It also stores a recipe of the chunks, so that a large file can be read by the
// hash of the whole.
package chunked

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/store/chunk"
)

// chunkFrom is the size in bytes from which a file is stored in chunks.
const chunkFrom = blob.RecipeFrom

// Vault stores files as blobs. It is safe for concurrent use.
type Vault struct{ *blob.Store }

// New returns a Vault that uses a store.
func New(s *blob.Store) *Vault { return &Vault{s} }

// Add stores the content of r, and calls stored with the name of each blob that it has
// stored. It returns TooLarge beyond limit bytes and Canceled with ctx. Errors of r without
// a Kind become Unavailable.
func (v *Vault) Add(ctx context.Context, r io.Reader, limit int64, stored func(sum string)) (content.Content, error) {
	w := &writer{vault: v, stored: stored, whole: sha256.New(), left: limit}
	r = reader{ctx, r}
	head, err := io.ReadAll(io.LimitReader(r, chunkFrom))
	if err != nil {
		return content.Content{}, failed(err)
	}
	if len(head) < chunkFrom {
		return w.single(ctx, head)
	}
	cutter := chunk.New(io.MultiReader(bytes.NewReader(head), r))
	for {
		b, err := cutter.Next()
		if errors.Is(err, io.EOF) {
			return w.finish(ctx)
		}
		if err != nil {
			return content.Content{}, failed(err)
		}
		if err := w.add(ctx, b); err != nil {
			return content.Content{}, err
		}
	}
}

// failed wraps an error of the input stream.
func failed(err error) error {
	if k := errs.KindOf(err); k != errs.Internal {
		return errs.Wrap("vault.Add", err)
	}
	return errs.WrapAs(errs.Unavailable, "vault.Add", err)
}

// writer stores one file.
type writer struct {
	vault   *Vault
	stored  func(sum string)
	whole   hash.Hash
	left    int64
	content content.Content
}

func (w *writer) tooLarge(n int) error {
	if w.left -= int64(n); w.left < 0 {
		return errs.New(errs.TooLarge, "the file is larger than %d MiB", (w.left+int64(n)+w.content.Size)>>20)
	}
	return nil
}

func (w *writer) single(ctx context.Context, b []byte) (content.Content, error) {
	if err := w.tooLarge(len(b)); err != nil {
		return content.Content{}, err
	}
	sum, err := w.vault.Put(ctx, b)
	if err != nil {
		return content.Content{}, errs.Wrap("vault.Add", err)
	}
	w.stored(sum)
	return content.Content{SHA256: sum, Size: int64(len(b))}, nil
}

func (w *writer) add(ctx context.Context, b []byte) error {
	if err := w.tooLarge(len(b)); err != nil {
		return err
	}
	_, _ = w.whole.Write(b) // never fails
	sum, err := w.vault.Put(ctx, b)
	if err != nil {
		return errs.Wrap("vault.Add", err)
	}
	w.stored(sum)
	w.content.Size += int64(len(b))
	w.content.Chunks = append(w.content.Chunks, content.Chunk{SHA256: sum, Size: int64(len(b))})
	return nil
}

// finish returns the content of a large file and stores its recipe. If the file is already
// stored as one blob, from before chunks existed, finish returns that, so that the same
// tree keeps its digest.
func (w *writer) finish(ctx context.Context) (content.Content, error) {
	c := w.content
	c.SHA256 = hex.EncodeToString(w.whole.Sum(nil))
	if whole, err := w.vault.Here(ctx, c.SHA256); err == nil {
		there, err := w.vault.HasWhole(ctx, c.SHA256, c.Size)
		if err = errors.Join(err, whole.Close()); err != nil {
			return content.Content{}, errs.WrapAs(errs.Unavailable, "vault.Add", err)
		}
		if there {
			w.stored(c.SHA256)
			return content.Content{SHA256: c.SHA256, Size: c.Size}, nil
		}
	}
	return c, errs.Wrap("vault.Add", w.vault.PutRecipe(ctx, c))
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
