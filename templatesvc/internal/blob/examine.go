package blob

import (
	"context"
	"errors"

	"github.com/orreryhq/orrery/libs/errs"
)

// Health is how a file was found.
type Health string

// The kinds of health.
const (
	Sound   Health = "sound"
	Corrupt Health = "corrupt" // it was put aside, and nobody has it
	Healed  Health = "healed"  // it was put aside, and fetched from elsewhere
)

// Examine reads a file again, whatever is known of it. What does not have its hash is put
// aside and fetched from elsewhere; why it could not be is the error then. A file that is
// gone is sound.
func (s *Store) Examine(ctx context.Context, f File) (Health, error) {
	b, _, err := s.open(ctx, f.Sum, f.Form)
	if errs.Is(err, errs.NotFound) {
		return Sound, nil
	}
	if err != nil {
		return Sound, errs.Wrap("blob.Examine", err)
	}
	f.Size = b.Size
	sound, err := Check(f, b.File)
	if err == nil && !sound {
		err = s.SetAside(ctx, f, b.File)
	}
	if err = errors.Join(err, b.Close()); err != nil || sound {
		return Sound, errs.As(errs.Unavailable, "blob.Examine", err)
	}
	if f.Form == Joined {
		err = s.fetchRecipe(ctx, f.Sum)
	} else {
		err = s.fetch(ctx, f.Sum)
	}
	if err != nil {
		return Corrupt, errs.Wrap("blob.Examine", err)
	}
	return Healed, nil
}
