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
	"os"

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

func (b *Stored) form() Form {
	if b.Packed {
		return Packed
	}
	return Raw
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
// verified; one that does not have its hash, or cannot be read off the disk, is put aside
// and NotFound.
func (s *Store) Here(ctx context.Context, sum string) (*Stored, error) {
	if !fleet.ValidDigest(sum) {
		return nil, errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	const looks = 3 // raw, packed, and what a medium reads anew
	for range looks {
		b, form, err := s.open(ctx, sum, Raw, Packed)
		if unreadable(err) {
			return nil, errs.New(errs.NotFound, "blob %s lies where the disk cannot be read: look at the disk", sum)
		}
		if err != nil {
			return nil, errs.Wrap("blob.Here", err)
		}
		sound, err := s.verify(sum, b)
		if sound && err == nil {
			return b, nil
		}
		if err == nil {
			err = s.foundDamaged(ctx, File{Sum: sum, Form: form, Size: b.Size}, b.File)
		}
		if err = errors.Join(err, b.Close()); err != nil {
			return nil, errs.As(errs.Unavailable, "blob.Here", err)
		}
	}
	return nil, errs.New(errs.NotFound, "blob %s was corrupt and has been put aside", sum)
}

func (s *Store) open(ctx context.Context, sum string, forms ...Form) (*Stored, Form, error) {
	f, form, err := s.Medium.Open(ctx, sum, forms...)
	if err != nil {
		return nil, form, err
	}
	if form == Packed {
		// What does not say its size has been damaged; verify finds out.
		size, _ := unpackedSize(f)
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, form, errs.As(errs.Unavailable, "blob.open", errors.Join(err, f.Close()))
		}
		return &Stored{File: f, Size: size, Packed: true}, form, nil
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, form, errs.As(errs.Unavailable, "blob.open", errors.Join(err, f.Close()))
	}
	return &Stored{File: f, Size: fi.Size()}, form, nil
}

// verify hashes a blob unless this very file was hashed before.
func (s *Store) verify(sum string, b *Stored) (sound bool, err error) {
	now, err := stampOf(b.File)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	known := s.verified[sum] == now
	s.mu.Unlock()
	if known {
		return true, nil
	}
	sound, err = Check(File{Sum: sum, Form: b.form(), Size: b.Size}, b.File)
	if unreadable(err) {
		return false, nil
	}
	if !sound || err != nil {
		return false, err
	}
	if _, err := b.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.verified) >= maxVerified {
		clear(s.verified)
	}
	s.verified[sum] = now
	return true, nil
}

// Check reports whether what is read is what a file should be: a blob that has its hash
// and size, a recipe that can be read. The error is the reader's own; nothing that was
// read makes one.
func Check(f File, from io.Reader) (bool, error) {
	w := &watched{Reader: from}
	var r io.Reader = w
	switch f.Form {
	case Joined:
		_, sound, err := readRecipe(w, f.Sum)
		return sound, err
	case Packed:
		dec, err := unpack(io.NopCloser(w))
		if err != nil {
			return false, errors.Join(err, w.err)
		}
		defer dec.Close()
		r = dec
	case Raw:
	}
	h := sha256.New()
	n, err := io.Copy(h, r)
	return err == nil && n == f.Size && hex.EncodeToString(h.Sum(nil)) == f.Sum, w.err
}

// watched keeps why a reader failed, whatever becomes of it above.
type watched struct {
	io.Reader
	err error
}

// Read reads on.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// Suspect verifies a blob anew, whatever was known of it, since somebody was given
// what does not have its hash. A corrupt one is fetched anew; NotFound when nobody has it.
// Of a large file the parts are: blobs all of them, also where a recipe that came from
// elsewhere names large files, or leads back to its own.
func (s *Store) Suspect(ctx context.Context, sum string) error {
	err := s.verifyAnew(ctx, sum)
	if !errs.Is(err, errs.NotFound) {
		return err
	}
	parts := []fleet.Chunk{{SHA256: sum}}
	if recipe, err := s.RecipeHere(ctx, sum); err == nil {
		parts = recipe.Chunks
	}
	for _, b := range parts {
		err := s.verifyAnew(ctx, b.SHA256)
		if errs.Is(err, errs.NotFound) {
			err = closed(s.Lookup(ctx, b.SHA256))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verifyAnew reads a blob that is stored here, also one that is known to be sound.
// Errors as of Here.
func (s *Store) verifyAnew(ctx context.Context, sum string) error {
	s.mu.Lock()
	delete(s.verified, sum)
	s.mu.Unlock()
	return closed(s.Here(ctx, sum))
}

// closed is the error of opening what nobody reads.
func closed(b *Stored, err error) error {
	if err != nil {
		return err
	}
	return errs.As(errs.Unavailable, "blob.Suspect", b.Close())
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
	f := File{Sum: c.SHA256, Form: Joined, Size: c.Size}
	if _, err := s.RecipeHere(ctx, c.SHA256); err == nil {
		if there, err := s.Medium.Has(ctx, f); there || err != nil {
			return errs.Wrap("blob.PutRecipe", err)
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return errs.As(errs.Internal, "blob.PutRecipe", err)
	}
	return errs.Wrap("blob.PutRecipe", s.Write(ctx, f, b))
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
	if !fleet.ValidDigest(sum) {
		return fleet.Content{}, errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	const looks = 2 // a medium may read anew what was damaged
	for range looks {
		f, _, err := s.Medium.Open(ctx, sum, Joined)
		if unreadable(err) {
			return fleet.Content{}, errs.New(errs.NotFound, "the recipe of file %s lies where the disk cannot be read: look at the disk", sum)
		}
		if err != nil {
			return fleet.Content{}, errs.Wrap("blob.RecipeHere", err)
		}
		c, sound, err := readRecipe(f, sum)
		if unreadable(err) {
			err = nil
		}
		if err == nil && !sound { // written anew by the next who stores it
			err = s.foundDamaged(ctx, File{Sum: sum, Form: Joined}, f)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fleet.Content{}, errs.As(errs.Unavailable, "blob.RecipeHere", err)
		}
		if sound {
			return c, nil
		}
	}
	return fleet.Content{}, errs.New(errs.NotFound, "the recipe of file %s was damaged and has been put aside", sum)
}

// maxRecipe bounds a recipe in bytes.
const maxRecipe = 64 << 20

func readRecipe(from io.Reader, sum string) (c fleet.Content, sound bool, err error) {
	b, err := io.ReadAll(io.LimitReader(from, maxRecipe))
	if err != nil {
		return c, false, err
	}
	if json.Unmarshal(b, &c) != nil || checkRecipe(c, sum) != nil {
		return fleet.Content{}, false, nil
	}
	return c, true, nil
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
