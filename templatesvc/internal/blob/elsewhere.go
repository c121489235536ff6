package blob

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Elsewhere is where content may be had that is not stored here.
type Elsewhere interface {
	// Blob opens a blob, or a large file whole; what it yields is not trusted. NotFound
	// when nobody has it, Unavailable when somebody may who does not answer.
	Blob(ctx context.Context, sum string) (io.ReadCloser, error)
	// Recipe is what a large file is joined from. Errors as of Blob.
	Recipe(ctx context.Context, sum string) (fleet.Content, error)
}

// fetches is how many blobs are fetched from elsewhere at once.
const fetches = 16

// AskElsewhere has what is missing here looked for elsewhere when it is read. It is
// called before the store is used; without it the store has what it has.
func (s *Store) AskElsewhere(e Elsewhere) { s.elsewhere = e }

// TellDamage has f told of each file that a read finds damaged, and where on the disk it was
// read. It is put aside: its place is taken by what is had elsewhere. It is called before the
// store is used.
func (s *Store) TellDamage(f func(damaged File, path string)) { s.damaged = f }

// foundDamaged puts aside what a read found damaged, and tells of it.
func (s *Store) foundDamaged(ctx context.Context, f File, from *os.File) error {
	if s.damaged != nil {
		s.damaged(f, from.Name())
	}
	return s.SetAside(ctx, f, from)
}

// Ensure makes sure that content is stored here, wherever it comes from. NotFound when
// nobody has all of it; other errors as of Elsewhere and Put.
func (s *Store) Ensure(ctx context.Context, c fleet.Content) error {
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

// ensure fetches one blob; perhaps a file that elsewhere is stored by a recipe.
func (s *Store) ensure(ctx context.Context, b fleet.Chunk, perhaps bool) error {
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

// fetch stores a blob that is had elsewhere.
func (s *Store) fetch(ctx context.Context, sum string) error {
	if s.elsewhere == nil {
		return errs.New(errs.NotFound, "blob %s is not stored here", sum)
	}
	return s.flights.Once(ctx, sum, func() error {
		if b, err := s.Here(ctx, sum); err == nil { // by whoever was faster
			return errs.As(errs.Unavailable, "blob.fetch", b.Close())
		}
		body, err := s.elsewhere.Blob(ctx, sum)
		if err != nil {
			return errs.Wrap("blob.fetch", err)
		}
		err = s.Import(ctx, sum, fleet.VersionLimits().FileBytes, body)
		return errors.Join(err, body.Close())
	})
}

// fetchRecipe stores a recipe that is had elsewhere.
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
			return errs.As(errs.Unavailable, "blob.fetchRecipe", err)
		}
		return s.PutRecipe(ctx, c)
	})
}
