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
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// maxVerified is the maximum number of entries in Store.verified.
const maxVerified = 1 << 20

// Stored is a verified blob in the form in which it is stored. The caller closes it.
type Stored struct {
	*os.File
	// Size is the size of the content in bytes. Packed is true when the file is compressed
	// with zstd.
	Size   int64
	Packed bool
}

// Open opens the content of a blob, or of a large file that is joined from chunks, until
// ctx ends. It returns NotFound when no source has it and Malformed when sum is no SHA-256.
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
	return r, errs.WrapAs(errs.Unavailable, "blob.Open", err)
}

// Lookup opens a blob as it is stored, and fetches it from elsewhere if necessary. It
// returns NotFound when no source has it.
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

// Here opens a blob as it is stored here. It verifies each blob once per process. A blob
// with a wrong hash is set aside. If a blob is missing, damaged or unreadable, Here returns
// NotFound.
func (s *Store) Here(ctx context.Context, sum string) (*Stored, error) {
	if !content.ValidDigest(sum) {
		return nil, errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	const looks = 3 // the raw form, the packed form, and what a bucket downloads again
	for range looks {
		b, form, err := s.open(ctx, sum, Raw, Packed)
		if unreadable(err) {
			return nil, errs.New(errs.NotFound, "the disk cannot read blob %s: check the disk", sum)
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
			return nil, errs.WrapAs(errs.Unavailable, "blob.Here", err)
		}
	}
	return nil, errs.New(errs.NotFound, "blob %s was corrupt and has been set aside", sum)
}

func (s *Store) open(ctx context.Context, sum string, forms ...Form) (*Stored, Form, error) {
	f, form, err := s.Medium.Open(ctx, sum, forms...)
	if err != nil {
		return nil, form, err
	}
	if form == Packed {
		// A blob without a size is damaged; verify finds that out.
		size, _ := unpackedSize(f)
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, form, errs.WrapAs(errs.Unavailable, "blob.open", errors.Join(err, f.Close()))
		}
		return &Stored{File: f, Size: size, Packed: true}, form, nil
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, form, errs.WrapAs(errs.Unavailable, "blob.open", errors.Join(err, f.Close()))
	}
	return &Stored{File: f, Size: fi.Size()}, form, nil
}

// verify hashes a blob, unless this process has already hashed this file.
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

// Check reports whether a reader yields what a file should contain: a blob with the right
// hash and size, or a valid recipe. The error is the reader's; damaged content is not an
// error.
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

// watched remembers the error of a reader, because the readers above it may replace that
// error.
type watched struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// Suspect verifies a blob again, because a client has received wrong content under this
// hash. It fetches a damaged blob, and returns NotFound when no source has it. For a large
// file, it verifies the chunks. It treats each chunk as a plain blob, so a malicious recipe
// that refers to other large files or to itself does no harm.
func (s *Store) Suspect(ctx context.Context, sum string) error {
	err := s.verifyAnew(ctx, sum)
	if !errs.Is(err, errs.NotFound) {
		return err
	}
	parts := []content.Chunk{{SHA256: sum}}
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

// verifyAnew verifies a blob even if it was verified before. It returns the errors of Here.
func (s *Store) verifyAnew(ctx context.Context, sum string) error {
	s.mu.Lock()
	delete(s.verified, sum)
	s.mu.Unlock()
	return closed(s.Here(ctx, sum))
}

// closed closes a blob that was opened only to verify it.
func closed(b *Stored, err error) error {
	if err != nil {
		return err
	}
	return errs.WrapAs(errs.Unavailable, "blob.Suspect", b.Close())
}

// ReadAll returns the content of a blob. It returns the errors of Lookup, and TooLarge
// beyond MaxBytes.
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
		return nil, errs.WrapAs(errs.Unavailable, "blob.ReadAll", err)
	}
	return out.Bytes(), nil
}

// RecipeFrom is the size in bytes from which files may be stored by a recipe.
const RecipeFrom = 1 << 20

// PutRecipe stores the recipe of a large file, so that the file can be read by the hash of
// the whole.
func (s *Store) PutRecipe(ctx context.Context, c content.Content) error {
	f := File{Sum: c.SHA256, Form: Joined, Size: c.Size}
	if _, err := s.RecipeHere(ctx, c.SHA256); err == nil {
		if there, err := s.Medium.Has(ctx, f); there || err != nil {
			return errs.Wrap("blob.PutRecipe", err)
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return errs.WrapAs(errs.Internal, "blob.PutRecipe", err)
	}
	return errs.Wrap("blob.PutRecipe", s.Write(ctx, f, b))
}

// Recipe returns the chunks of a large file, and fetches the recipe from elsewhere if
// necessary. It returns NotFound when no source has one, for example because the file is
// stored as one blob.
func (s *Store) Recipe(ctx context.Context, sum string) (content.Content, error) {
	c, err := s.RecipeHere(ctx, sum)
	if !errs.Is(err, errs.NotFound) {
		return c, err
	}
	if err := s.fetchRecipe(ctx, sum); err != nil {
		return c, err
	}
	return s.RecipeHere(ctx, sum)
}

// RecipeHere is like Recipe, but looks only in this store.
func (s *Store) RecipeHere(ctx context.Context, sum string) (content.Content, error) {
	if !content.ValidDigest(sum) {
		return content.Content{}, errs.New(errs.Malformed, "%q is not a SHA-256", clip(sum))
	}
	const looks = 2 // a bucket may download a damaged file again
	for range looks {
		f, _, err := s.Medium.Open(ctx, sum, Joined)
		if unreadable(err) {
			return content.Content{}, errs.New(errs.NotFound, "the disk cannot read the recipe of file %s: check the disk", sum)
		}
		if err != nil {
			return content.Content{}, errs.Wrap("blob.RecipeHere", err)
		}
		c, sound, err := readRecipe(f, sum)
		if unreadable(err) {
			err = nil
		}
		if err == nil && !sound { // the next PutRecipe writes it again
			err = s.foundDamaged(ctx, File{Sum: sum, Form: Joined}, f)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return content.Content{}, errs.WrapAs(errs.Unavailable, "blob.RecipeHere", err)
		}
		if sound {
			return c, nil
		}
	}
	return content.Content{}, errs.New(errs.NotFound, "the recipe of file %s was damaged and has been set aside", sum)
}

// maxRecipe is the maximum size of a recipe in bytes.
const maxRecipe = 64 << 20

func readRecipe(from io.Reader, sum string) (c content.Content, sound bool, err error) {
	b, err := io.ReadAll(io.LimitReader(from, maxRecipe))
	if err != nil {
		return c, false, err
	}
	if json.Unmarshal(b, &c) != nil || checkRecipe(c, sum) != nil {
		return content.Content{}, false, nil
	}
	return c, true, nil
}

// checkRecipe returns an error unless c is a valid recipe of the file sum.
func checkRecipe(c content.Content, sum string) error {
	size := int64(0)
	for _, b := range c.Chunks {
		if !content.ValidDigest(b.SHA256) || b.SHA256 == sum || b.Size <= 0 || b.Size > MaxBytes {
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
