package blob

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// rescue takes a condemned blob back, in whatever way it is stored. Whoever wanted it
// looks again: others may do the same at the same time.
func (s *Store) rescue(sum string) {
	cycles, err := os.ReadDir(s.trash())
	if err != nil {
		return
	}
	for _, c := range cycles {
		for _, suffix := range []string{"", compressed, recipe} {
			// What is not there, or has gone meanwhile, is not taken back.
			_ = os.Rename(filepath.Join(s.trash(), c.Name(), sum+suffix), s.path(sum+suffix))
		}
	}
}

// Files are the names of all files of the store with their hashes, in no order: blobs,
// compressed ones and recipes. What appears meanwhile may be missing.
func (s *Store) Files() iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		shelves, err := os.ReadDir(s.dir)
		if err != nil {
			yield(File{}, errs.As(errs.Unavailable, "blob.Files", err))
			return
		}
		for _, shelf := range shelves {
			if len(shelf.Name()) != 2 {
				continue
			}
			files, err := filesIn(filepath.Join(s.dir, shelf.Name()))
			if err != nil {
				yield(File{}, err)
				return
			}
			for _, f := range files {
				if !yield(f, nil) {
					return
				}
			}
		}
	}
}

// File is one file of the store.
type File struct{ Name, Sum string }

func filesIn(dir string) (files []File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.As(errs.Unavailable, "blob.Files", err)
	}
	for _, e := range entries {
		if name := e.Name(); len(name) >= 64 && fleet.ValidDigest(name[:64]) {
			files = append(files, File{Name: name, Sum: name[:64]})
		}
	}
	return files, nil
}

// Cycle is the trash of one collection. What lies in it is taken back by whoever wants
// it, until it is buried.
type Cycle struct {
	store *Store
	dir   string
}

// NewCycle makes an empty trash. Names are not used twice.
func (s *Store) NewCycle(name string) (*Cycle, error) {
	c := &Cycle{store: s, dir: filepath.Join(s.trash(), name)}
	return c, errs.As(errs.Unavailable, "blob.NewCycle", os.Mkdir(c.dir, 0o755))
}

// Adopt takes over the trash of collections that ended half-way: those that own
// reports true for, and those nobody has touched since before. A collection that lives
// and loses its trash so condemns and buries nothing more. Nil when there is none.
func (s *Store) Adopt(name string, own func(name string) bool, before time.Time) (*Cycle, error) {
	entries, err := os.ReadDir(s.trash())
	if err != nil {
		return nil, errs.As(errs.Unavailable, "blob.Adopt", err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || !own(e.Name()) && !fi.ModTime().Before(before) {
			continue
		}
		c := &Cycle{store: s, dir: filepath.Join(s.trash(), name)}
		if err := os.Rename(filepath.Join(s.trash(), e.Name()), c.dir); err == nil {
			return c, nil
		}
	}
	return nil, nil
}

// Condemn moves a file of the store into the trash. One that is gone already is no error.
func (c *Cycle) Condemn(f File) error {
	err := os.Rename(c.store.path(f.Name), filepath.Join(c.dir, f.Name))
	if !errors.Is(err, fs.ErrNotExist) {
		return errs.As(errs.Unavailable, "blob.Condemn", err)
	}
	if _, err := os.Stat(c.dir); err != nil {
		return errs.As(errs.Unavailable, "blob.Condemn", err) // adopted by another
	}
	return nil
}

// Condemned is what lies in the trash.
func (c *Cycle) Condemned() ([]File, error) { return filesIn(c.dir) }

// Restore moves a file back into the store. One that is gone already is no error.
func (c *Cycle) Restore(f File) error {
	return gone("blob.Restore", os.Rename(filepath.Join(c.dir, f.Name), c.store.path(f.Name)))
}

// Bury removes a file from the trash for good and returns its bytes on the disk.
func (c *Cycle) Bury(f File) (bytes int64, err error) {
	path := filepath.Join(c.dir, f.Name)
	if fi, err := os.Stat(path); err == nil {
		bytes = fi.Size()
	}
	return bytes, gone("blob.Bury", os.Remove(path))
}

// End removes the trash itself when it is empty.
func (c *Cycle) End() error { return gone("blob.End", os.Remove(c.dir)) }

func gone(op string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.As(errs.Unavailable, op, err)
}
