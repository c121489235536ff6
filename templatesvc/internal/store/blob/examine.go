package blob

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Health is the result of examining a file.
type Health string

// The kinds of health.
const (
	Sound   Health = "sound"
	Corrupt Health = "corrupt" // damaged, and no source has it
	Healed  Health = "healed"  // damaged, and fetched from elsewhere
	Unread  Health = "unread"  // it could not be opened or read, for a reason other than a damaged disk
)

// Healths lists all values of Health, for tables and metrics.
var Healths = [...]Health{Sound, Corrupt, Healed, Unread}

// Examine reads and hashes a file, even if it was verified before. It sets a damaged or
// unreadable file aside and fetches it from elsewhere. The error says why the file could
// not be read or fetched. A file that no longer exists counts as Sound.
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
		return Corrupt, errs.WrapAs(errs.Unavailable, "blob.Examine", err)
	case damaged:
		return s.heal(ctx, f)
	case err != nil:
		return Unread, errs.WrapAs(errs.Unavailable, "blob.Examine", err)
	}
	return Sound, nil
}

// heal fetches a damaged file from elsewhere.
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

// unreadable reports whether an error means that the disk has lost data, such as a bad
// sector or a wrong checksum.
func unreadable(err error) bool {
	for _, lost := range []error{unix.EIO, unix.ENODATA, unix.EBADMSG, unix.EUCLEAN} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}
