package blob

import (
	"context"
	"iter"
	"os"
	"time"
)

// Form is how content is stored. Its value is the suffix of the file.
type Form string

// The forms. A blob is stored as Raw or Packed.
const (
	Raw    Form = ""        // as it is
	Packed Form = ".zst"    // compressed, where that saves enough
	Joined Form = ".chunks" // a recipe: the chunks of a large file, as JSON
)

// File is one file of a medium.
type File struct {
	// Sum is the SHA-256 of the content. For a recipe, it is that of the whole file.
	Sum  string
	Form Form
	// Size is the size of the content in bytes; for a recipe, of the whole file. It is 0 in
	// listings of a medium that does not know it.
	Size int64
	// Name is the medium's name of the file and Bytes the space it takes there. Only
	// listings set them.
	Name  string
	Bytes int64
	// Condemned is true when a collection has condemned the file. Nothing may refer to it.
	Condemned bool
}

// Medium keeps the files of a store, in a directory or a bucket. It is safe for concurrent
// use, also by several processes. Its methods return NotFound, Exhausted when it is full,
// Unavailable or Canceled.
type Medium interface {
	// Has reports whether a file is stored, and restores it first if it is condemned. A
	// blob may be Raw or Packed and must have that size; a recipe only has to exist. Has
	// never answers from a cache.
	Has(ctx context.Context, f File) (bool, error)
	// Open opens the first of the forms that exists, as an immutable local file. It also
	// opens condemned files; a caller that will refer to the file calls Has first. It
	// returns NotFound when none of the forms exists.
	Open(ctx context.Context, sum string, forms ...Form) (*os.File, Form, error)
	// Write stores a file, whole or not at all. Take does so with a file in the spool, and
	// may close and remove that.
	Write(ctx context.Context, f File, b []byte) error
	Take(ctx context.Context, f File, spooled *os.File) error
	// SetAside removes a damaged file from the store. read is the file that the caller
	// read. A sound replacement of it stays.
	SetAside(ctx context.Context, f File, read *os.File) error
	// Flush makes all finished writes survive a power failure.
	Flush(ctx context.Context) error
	// ID identifies the medium. Replicas that share a medium get the same ID.
	ID(ctx context.Context) (string, error)

	// Files lists all files in no particular order. Files that appear during the listing
	// may be missing. The listing may continue after an error; a caller that needs all
	// files stops there.
	Files(ctx context.Context) iter.Seq2[File, error]
	// NewCycle begins a collection. A name must not be used twice.
	NewCycle(ctx context.Context, name string) (Cycle, error)
	// Adopt takes over an unfinished collection: one for which own returns true, or one
	// that has not changed for the duration forsaken. It returns nil when there is none.
	Adopt(ctx context.Context, name string, own func(name string) bool, forsaken time.Duration) (Cycle, error)
}

// Cycle is one garbage collection in a medium. Files that it has condemned can still be
// read, and Has restores them, until they are buried. A Cycle is not safe for concurrent
// use.
type Cycle interface {
	// Condemn marks a file for removal. A file that is already gone is no error.
	Condemn(ctx context.Context, f File) error
	// Condemned lists the files that this cycle has condemned and that still exist.
	Condemned(ctx context.Context) iter.Seq2[File, error]
	// Restore makes a condemned file normal again. A file that is already gone is no error.
	Restore(ctx context.Context, f File) error
	// Bury deletes a condemned file and returns the bytes it took in the medium.
	Bury(ctx context.Context, f File) (bytes int64, err error)
	// End removes the cycle.
	End(ctx context.Context) error
}
