package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// maxVerified bounds what is remembered of verified files.
const maxVerified = 1 << 20

// Stored is a blob as it lies on the disk, verified. Close it.
type Stored struct {
	*os.File
	// Size is the content's, in bytes; Packed says that the file is it compressed by zstd.
	Size   int64
	Packed bool
}

// Open opens a blob's content, or a large file joined from its chunks, until ctx ends.
// NotFound when nobody has it, Malformed when the name is none.
func (s *Store) Open(ctx context.Context, sum string) (io.ReadCloser, error) {
	b, err := s.Here(ctx, sum)
	if err == nil {
		return b.content()
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	c, err := s.Recipe(ctx, sum)
	if err == nil {
		return s.Join(ctx, c)
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	if b, err = s.Lookup(ctx, sum); err != nil {
		return nil, err
	}
	return b.content()
}

func (b *Stored) content() (io.ReadCloser, error) {
	if !b.Packed {
		return b.File, nil
	}
	r, err := unpack(b.File)
	return r, errs.As(errs.Unavailable, "blob.Open", err)
}

// Lookup opens a blob as it is stored, fetched from elsewhere if need be. NotFound when
// nobody has it.
func (s *Store) Lookup(ctx context.Context, sum string) (*Stored, error) {
	b, err := s.Here(ctx, sum)
	if !errs.Is(err, errs.NotFound) {
		return b, err
	}
	if err := s.fetch(ctx, sum); err != nil {
		return nil, err
	}
	return s.Here(ctx, sum)
}

// Here opens a blob as it is stored here. The first time in a process it is read and
// verified; one that does not have its hash is put aside and NotFound.
func (s *Store) Here(ctx context.Context, sum string) (*Stored, error) {
	if !fleet.ValidDigest(sum) {
		return nil, errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap("blob.Here", err)
	}
	b, err := s.lookup(sum)
	if errors.Is(err, fs.ErrNotExist) {
		s.rescue(sum)
		b, err = s.lookup(sum)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errs.New(errs.NotFound, "blob %s is not stored here", sum)
	case err != nil:
		return nil, errs.As(errs.Unavailable, "blob.Here", err)
	}
	if err := s.verify(sum, b); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (s *Store) lookup(sum string) (*Stored, error) {
	f, err := os.Open(s.path(sum))
	if err == nil {
		fi, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return &Stored{File: f, Size: fi.Size()}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if f, err = os.Open(s.path(sum + compressed)); err != nil {
		return nil, err
	}
	// What does not say its size has been damaged; verify finds out.
	size, _ := unpackedSize(f)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Stored{File: f, Size: size, Packed: true}, nil
}

// verify hashes a blob unless this very file was hashed before.
func (s *Store) verify(sum string, b *Stored) error {
	now, err := stampOf(b.File)
	if err != nil {
		return errs.As(errs.Unavailable, "blob.verify", err)
	}
	s.mu.Lock()
	known := s.verified[sum] == now
	s.mu.Unlock()
	if known {
		return nil
	}
	var r io.Reader = b.File
	if b.Packed {
		dec, err := unpack(io.NopCloser(b.File))
		if err != nil {
			return errs.As(errs.Unavailable, "blob.verify", err)
		}
		defer dec.Close()
		r = dec
	}
	h := sha256.New()
	size, err := io.Copy(h, r)
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return errs.As(errs.Unavailable, "blob.verify", err)
	}
	if err != nil || hex.EncodeToString(h.Sum(nil)) != sum || size != b.Size {
		return s.setAside(sum, b)
	}
	if _, err := b.Seek(0, io.SeekStart); err != nil {
		return errs.As(errs.Unavailable, "blob.verify", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.verified) >= maxVerified {
		clear(s.verified)
	}
	s.verified[sum] = now
	return nil
}

// setAside takes a corrupt blob out of the store. The error is NotFound: it is not
// stored any more.
func (s *Store) setAside(sum string, b *Stored) error {
	if err := os.Rename(b.Name(), filepath.Join(s.corrupt(), filepath.Base(b.Name()))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.As(errs.Unavailable, "blob.verify", err)
	}
	return &errs.Error{Op: "blob.verify", Kind: errs.NotFound, Message: fmt.Sprintf("blob %s was corrupt on disk and has been put aside", sum)}
}

// Suspect verifies a blob anew, whatever was known of it, since somebody was given
// what does not have its hash. A corrupt one is fetched anew; NotFound when nobody has it.
func (s *Store) Suspect(ctx context.Context, sum string) error {
	s.mu.Lock()
	delete(s.verified, sum)
	s.mu.Unlock()
	b, err := s.Here(ctx, sum)
	if errs.Is(err, errs.NotFound) {
		if recipe, recipeErr := s.RecipeHere(ctx, sum); recipeErr == nil { // its parts are blobs of their own
			return s.suspectParts(ctx, recipe)
		}
		b, err = s.Lookup(ctx, sum)
	}
	if err != nil {
		return err
	}
	return errs.As(errs.Unavailable, "blob.Suspect", b.Close())
}

func (s *Store) suspectParts(ctx context.Context, c fleet.Content) error {
	for _, b := range c.Chunks {
		if err := s.Suspect(ctx, b.SHA256); err != nil {
			return err
		}
	}
	return nil
}

// ReadAll reads a blob that fits into memory. Errors as of Open; TooLarge beyond MaxBytes.
func (s *Store) ReadAll(ctx context.Context, sum string) ([]byte, error) {
	b, err := s.Lookup(ctx, sum)
	if err != nil {
		return nil, err
	}
	if b.Size > MaxBytes {
		return nil, errors.Join(errs.New(errs.TooLarge, "blob %s has %d MiB", sum, b.Size>>20), b.Close())
	}
	r, err := b.content()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out bytes.Buffer
	out.Grow(int(b.Size))
	if _, err := io.Copy(&out, r); err != nil {
		return nil, errs.As(errs.Unavailable, "blob.ReadAll", err)
	}
	return out.Bytes(), nil
}

// RecipeFrom is the least size in bytes of a file that is stored by a recipe.
const RecipeFrom = 1 << 20

// PutRecipe remembers what a large file is joined from, so that it can be had by the
// hash of the whole too.
func (s *Store) PutRecipe(ctx context.Context, c fleet.Content) error {
	if _, err := s.RecipeHere(ctx, c.SHA256); err == nil {
		return nil
	}
	b, err := json.Marshal(c)
	if err != nil {
		return errs.As(errs.Internal, "blob.PutRecipe", err)
	}
	return s.write(c.SHA256+recipe, b)
}

// Recipe is what a large file is joined from, fetched from elsewhere if need be. NotFound
// when nobody knows, or it is stored as one blob.
func (s *Store) Recipe(ctx context.Context, sum string) (fleet.Content, error) {
	c, err := s.RecipeHere(ctx, sum)
	if !errs.Is(err, errs.NotFound) {
		return c, err
	}
	if err := s.fetchRecipe(ctx, sum); err != nil {
		return c, err
	}
	return s.RecipeHere(ctx, sum)
}

// RecipeHere is what a large file is joined from. NotFound when it is not known here.
func (s *Store) RecipeHere(ctx context.Context, sum string) (fleet.Content, error) {
	var c fleet.Content
	if !fleet.ValidDigest(sum) {
		return c, errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	if err := ctx.Err(); err != nil {
		return c, errs.Wrap("blob.RecipeHere", err)
	}
	b, err := os.ReadFile(s.path(sum + recipe))
	if errors.Is(err, fs.ErrNotExist) {
		s.rescue(sum)
		b, err = os.ReadFile(s.path(sum + recipe))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, errs.New(errs.NotFound, "file %s is not stored here", sum)
	case err != nil:
		return c, errs.As(errs.Unavailable, "blob.RecipeHere", err)
	}
	if err = json.Unmarshal(b, &c); err == nil {
		err = checkRecipe(c, sum)
	}
	if err != nil { // written anew by the next who stores it
		err = errors.Join(err, gone("blob.RecipeHere", os.Rename(s.path(sum+recipe), filepath.Join(s.corrupt(), sum+recipe))))
		return fleet.Content{}, errs.As(errs.NotFound, "blob.RecipeHere", err)
	}
	return c, nil
}

// checkRecipe refuses what is no recipe of a file.
func checkRecipe(c fleet.Content, sum string) error {
	size := int64(0)
	for _, b := range c.Chunks {
		if !fleet.ValidDigest(b.SHA256) || b.SHA256 == sum || b.Size <= 0 || b.Size > MaxBytes {
			return fmt.Errorf("the recipe of %s is damaged", sum)
		}
		size += b.Size
	}
	if c.SHA256 != sum || len(c.Chunks) == 0 || c.Size != size {
		return fmt.Errorf("the recipe of %s is damaged", sum)
	}
	return nil
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
