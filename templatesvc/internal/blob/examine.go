package blob

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Health is how a file was found.
type Health string

// The kinds of health.
const (
	Sound   Health = "sound"
	Corrupt Health = "corrupt" // damaged, and nobody has it
	Healed  Health = "healed"  // damaged, and fetched from elsewhere
	Unread  Health = "unread"  // it could not be opened or read, for want of something else than a sound disk
)

// Healths lists every health, for tables and metrics.
var Healths = [...]Health{Sound, Corrupt, Healed, Unread}

// Examine reads a file again, whatever is known of it. What does not have its hash, or
// lies where the disk cannot be read, is put aside and fetched from elsewhere. The error
// is why it could not be, or was not read. A file that is gone is sound.
func (s *Store) Examine(ctx context.Context, f File) (Health, error) {
	b, _, err := s.open(ctx, f.Sum, f.Form)
	switch {
	case errs.Is(err, errs.NotFound):
		return Sound, nil
	case unreadable(err):
		return s.heal(ctx, f)
	case err != nil:
		return Unread, errs.Wrap("blob.Examine", err)
	}
	f.Size = b.Size
	sound, err := Check(f, b.File)
	damaged := !sound && (err == nil || unreadable(err))
	if damaged {
		err = s.SetAside(ctx, f, b.File)
	}
	err = errors.Join(err, b.Close())
	switch {
	case damaged && err != nil:
		return Corrupt, errs.As(errs.Unavailable, "blob.Examine", err)
	case damaged:
		return s.heal(ctx, f)
	case err != nil:
		return Unread, errs.As(errs.Unavailable, "blob.Examine", err)
	}
	return Sound, nil
}

// heal fetches anew what was damaged here.
func (s *Store) heal(ctx context.Context, f File) (Health, error) {
	var err error
	if f.Form == Joined {
		err = s.fetchRecipe(ctx, f.Sum)
	} else {
		err = s.fetch(ctx, f.Sum)
	}
	if err != nil {
		return Corrupt, errs.Wrap("blob.heal", err)
	}
	return Healed, nil
}

// unreadable reports whether an error is that of a disk that has lost what it was given:
// a bad sector, or a checksum that does not fit.
func unreadable(err error) bool {
	for _, lost := range []error{unix.EIO, unix.ENODATA, unix.EBADMSG, unix.EUCLEAN} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}
