// Package vault stores files of any size in the blobs of a store, and gives them back.
//
// A file of 1 MiB or more is cut by its content, so that a changed file shares most of
// its chunks with what is stored. Memory is bounded by a few chunks, whatever the file.
// Beside the chunks stands what they are joined to: a large file can be had by the hash
// of the whole too.
package vault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/chunk"
)

// chunkFrom is the size in bytes from which a file is stored in chunks.
const chunkFrom = blob.RecipeFrom

// Vault stores files. It is safe for concurrent use.
type Vault struct{ *blob.Store }

// New makes a vault over a store.
func New(s *blob.Store) *Vault { return &Vault{s} }

// Add stores what r yields; stored is called with the name of each blob when it is.
// TooLarge when more than limit bytes come, Canceled with ctx; the reader's errors
// are Unavailable unless they have a Kind.
func (v *Vault) Add(ctx context.Context, r io.Reader, limit int64, stored func(sum string)) (fleet.Content, error) {
	w := &writer{vault: v, stored: stored, whole: sha256.New(), left: limit}
	r = reader{ctx, r}
	head, err := io.ReadAll(io.LimitReader(r, chunkFrom))
	if err != nil {
		return fleet.Content{}, failed(err)
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
			return fleet.Content{}, failed(err)
		}
		if err := w.add(ctx, b); err != nil {
			return fleet.Content{}, err
		}
	}
}

// failed is why a stream could not be read.
func failed(err error) error {
	if k := errs.KindOf(err); k != errs.Internal {
		return errs.Wrap("vault.Add", err)
	}
	return errs.As(errs.Unavailable, "vault.Add", err)
}

// writer stores one file.
type writer struct {
	vault   *Vault
	stored  func(sum string)
	whole   hash.Hash
	left    int64
	content fleet.Content
}

func (w *writer) tooLarge(n int) error {
	if w.left -= int64(n); w.left < 0 {
		return errs.New(errs.TooLarge, "the file is larger than %d MiB", (w.left+int64(n)+w.content.Size)>>20)
	}
	return nil
}

func (w *writer) single(ctx context.Context, b []byte) (fleet.Content, error) {
	if err := w.tooLarge(len(b)); err != nil {
		return fleet.Content{}, err
	}
	sum, err := w.vault.Put(ctx, b)
	if err != nil {
		return fleet.Content{}, errs.Wrap("vault.Add", err)
	}
	w.stored(sum)
	return fleet.Content{SHA256: sum, Size: int64(len(b))}, nil
}

func (w *writer) add(ctx context.Context, b []byte) error {
	if err := w.tooLarge(len(b)); err != nil {
		return err
	}
	_, _ = w.whole.Write(b) // a hash takes everything
	sum, err := w.vault.Put(ctx, b)
	if err != nil {
		return errs.Wrap("vault.Add", err)
	}
	w.stored(sum)
	w.content.Size += int64(len(b))
	w.content.Chunks = append(w.content.Chunks, fleet.Chunk{SHA256: sum, Size: int64(len(b))})
	return nil
}

// finish is the content of a large file. One that was stored as one blob, before there
// were chunks, stays so: the same tree keeps its digest.
func (w *writer) finish(ctx context.Context) (fleet.Content, error) {
	c := w.content
	c.SHA256 = hex.EncodeToString(w.whole.Sum(nil))
	if whole, err := w.vault.Here(ctx, c.SHA256); err == nil {
		there, err := w.vault.HasWhole(ctx, c.SHA256, c.Size)
		if err = errors.Join(err, whole.Close()); err != nil {
			return fleet.Content{}, errs.As(errs.Unavailable, "vault.Add", err)
		}
		if there {
			w.stored(c.SHA256)
			return fleet.Content{SHA256: c.SHA256, Size: c.Size}, nil
		}
	}
	return c, errs.Wrap("vault.Add", w.vault.PutRecipe(ctx, c))
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read reads on.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
