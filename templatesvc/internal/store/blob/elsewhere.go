package blob

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Elsewhere supplies content that this store lacks.
type Elsewhere interface {
	// Blob opens a blob, or a large file as a whole. The caller verifies the content. It
	// returns NotFound when no source has the blob, and Unavailable when a source that may
	// have it does not answer.
	Blob(ctx context.Context, sum string) (io.ReadCloser, error)
	// Recipe returns the chunks of a large file. It returns the same errors as Blob.
	Recipe(ctx context.Context, sum string) (content.Content, error)
}

// fetches is the maximum number of concurrent fetches from elsewhere.
const fetches = 16

// AskElsewhere sets where the store fetches missing blobs. Call it before the store is
// used. Without it, the store serves only its own files.
func (s *Store) AskElsewhere(e Elsewhere) { s.elsewhere = e }

// TellDamage sets a function that the store calls with each damaged file that a read finds,
// and its path on the disk. The store then sets the file aside, so that it can fetch it
// from elsewhere. Call TellDamage before the store is used.
func (s *Store) TellDamage(f func(damaged File, path string)) { s.damaged = f }

// foundDamaged reports a damaged file and sets it aside.
func (s *Store) foundDamaged(ctx context.Context, f File, from *os.File) error {
	if s.damaged != nil {
		s.damaged(f, from.Name())
	}
	return s.SetAside(ctx, f, from)
}

// Ensure makes sure that content is stored here, and fetches what is missing. It returns
// NotFound when no source has all of it, and otherwise the errors of Elsewhere and Put.
func (s *Store) Ensure(ctx context.Context, c content.Content) error {
	for _, b := range c.Blobs() {
		there, err := s.Has(ctx, b.SHA256, b.Size)
		if err == nil && !there {
			err = s.ensure(ctx, b, c.Chunks == nil && b.Size >= RecipeFrom)
		}
		if err != nil {
			return err
		}
	}
	if c.Chunks == nil {
		return nil
	}
	return s.PutRecipe(ctx, c)
}

// ensure fetches one blob. perhaps is true when it may be a large file that other stores
// keep by a recipe.
func (s *Store) ensure(ctx context.Context, b content.Chunk, perhaps bool) error {
	if perhaps {
		c, err := s.Recipe(ctx, b.SHA256)
		if err == nil && c.Size == b.Size {
			return s.Ensure(ctx, c)
		}
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	if err := s.fetch(ctx, b.SHA256); err != nil {
		return err
	}
	there, err := s.Has(ctx, b.SHA256, b.Size)
	if err == nil && !there {
		err = errs.New(errs.NotFound, "blob %s has another size than its version says", b.SHA256)
	}
	return err
}

// fetch stores a blob that it reads from elsewhere.
func (s *Store) fetch(ctx context.Context, sum string) error {
	if s.elsewhere == nil {
		return errs.New(errs.NotFound, "blob %s is not stored here", sum)
	}
	return s.flights.Once(ctx, sum, func() error {
		if b, err := s.Here(ctx, sum); err == nil { // another goroutine or process was faster
			return errs.WrapAs(errs.Unavailable, "blob.fetch", b.Close())
		}
		body, err := s.elsewhere.Blob(ctx, sum)
		if err != nil {
			return errs.Wrap("blob.fetch", err)
		}
		err = s.Import(ctx, sum, content.VersionLimits().FileBytes, body)
		return errors.Join(err, body.Close())
	})
}

// fetchRecipe stores a recipe that it reads from elsewhere.
func (s *Store) fetchRecipe(ctx context.Context, sum string) error {
	if s.elsewhere == nil {
		return errs.New(errs.NotFound, "file %s is not stored here", sum)
	}
	return s.flights.Once(ctx, sum+string(Joined), func() error {
		c, err := s.elsewhere.Recipe(ctx, sum)
		if err != nil {
			return errs.Wrap("blob.fetchRecipe", err)
		}
		if err := checkRecipe(c, sum); err != nil {
			return errs.WrapAs(errs.Unavailable, "blob.fetchRecipe", err)
		}
		return s.PutRecipe(ctx, c)
	})
}
