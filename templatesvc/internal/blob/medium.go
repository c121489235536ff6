package blob

import (
	"context"
	"iter"
	"os"
	"time"
)

// Form is a way content is kept in, and the suffix of its file.
type Form string

// The forms. A blob is kept raw or packed.
const (
	Raw    Form = ""        // as it is
	Packed Form = ".zst"    // compressed, where that saves enough
	Joined Form = ".chunks" // what a large file is joined from, as JSON: its recipe
)

// File is one file of a medium.
type File struct {
	// Sum is the SHA-256 of the content, of a recipe that of the whole file.
	Sum  string
	Form Form
	// Size is the content's in bytes, of a recipe the whole file's; 0 in a listing where
	// the medium does not know it.
	Size int64
	// Name is what the medium calls it, Bytes what it takes there; in listings alone.
	Name  string
	Bytes int64
	// Condemned says that a collection has condemned it, and nobody may rely on it.
	Condemned bool
}

// Medium is where the files of a store lie: a directory, a bucket. It is safe for
// concurrent use, also by several processes. Its errors are NotFound, Exhausted when it
// is full, Unavailable or Canceled.
type Medium interface {
	// Has makes sure that a file is there and not condemned: a blob of that size, raw or
	// packed, or the recipe where that is the form. It asks the medium each time.
	Has(ctx context.Context, f File) (bool, error)
	// Open opens the first of some forms as a file on this host, which nobody changes, be it
	// condemned or not: who relies on it asks Has. NotFound when there is none.
	Open(ctx context.Context, sum string, forms ...Form) (*os.File, Form, error)
	// Write makes a file appear whole or not at all; Take does it with a file of the spool,
	// which may be closed and gone then.
	Write(ctx context.Context, f File, b []byte) error
	Take(ctx context.Context, f File, spooled *os.File) error
	// SetAside takes a file away that, as it was read, does not have its hash. What is
	// opened after that may have it.
	SetAside(ctx context.Context, f File, read *os.File) error
	// Flush makes what was written survive a power cut.
	Flush(ctx context.Context) error
	// ID tells one medium from another: replicas that share it have the same.
	ID(ctx context.Context) (string, error)

	// Files are all files in no order. What appears meanwhile may be missing. After an
	// error the rest may follow, as far as it can be had: who needs all stops there.
	Files(ctx context.Context) iter.Seq2[File, error]
	// NewCycle begins a collection. Names are not used twice.
	NewCycle(ctx context.Context, name string) (Cycle, error)
	// Adopt takes over a collection that ended half-way: one that own reports true for, or
	// one nobody has touched for so long. Nil when there is none.
	Adopt(ctx context.Context, name string, own func(name string) bool, forsaken time.Duration) (Cycle, error)
}

// Cycle is one collection in a medium. What it condemns can still be read, and is taken
// back by whoever wants to rely on it, until it is buried. For one goroutine.
type Cycle interface {
	// Condemn condemns a file. One that is gone already is no error.
	Condemn(ctx context.Context, f File) error
	// Condemned are the files that this cycle has condemned and that are still there.
	Condemned(ctx context.Context) iter.Seq2[File, error]
	// Restore has a condemned file there again. One that is gone already is no error.
	Restore(ctx context.Context, f File) error
	// Bury removes a condemned file for good and returns its bytes in the medium.
	Bury(ctx context.Context, f File) (bytes int64, err error)
	// End forgets the cycle.
	End(ctx context.Context) error
}
