package blob

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
)

// rescue restores a condemned blob in all its forms. The caller then looks for the blob
// again, because other processes may restore it at the same time.
func (d *disk) rescue(sum string) {
	cycles, err := os.ReadDir(d.trash())
	if err != nil {
		return
	}
	for _, c := range cycles {
		for _, form := range []Form{Raw, Packed, Joined} {
			// Fails when the file is not there.
			_ = os.Rename(filepath.Join(d.trash(), c.Name(), sum+string(form)), d.path(sum, form))
		}
	}
}

// Files implements Medium. After an error in one directory, it continues with the next one.
func (d *disk) Files(ctx context.Context) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		shelves, err := os.ReadDir(d.dir)
		if err != nil {
			yield(File{}, errs.WrapAs(errs.Unavailable, "blob.Files", err))
			return
		}
		for _, shelf := range shelves {
			if len(shelf.Name()) != 2 {
				continue
			}
			for f, err := range filesIn(ctx, filepath.Join(d.dir, shelf.Name())) {
				if !yield(f, err) || ctx.Err() != nil {
					return
				}
			}
		}
	}
}

// filesIn lists the files in a directory. A missing directory counts as empty.
func filesIn(ctx context.Context, dir string) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !yield(File{}, errs.WrapAs(errs.Unavailable, "blob.Files", err)) {
			return
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				yield(File{}, errs.Wrap("blob.Files", err))
				return
			}
			name := e.Name()
			if len(name) < 64 || !content.ValidDigest(name[:64]) {
				continue
			}
			if !yield(File{Sum: name[:64], Form: Form(name[64:]), Name: name}, nil) {
				return
			}
		}
	}
}

// cycle is a directory in the trash.
type cycle struct {
	disk *disk
	dir  string
}

// NewCycle implements Medium.
func (d *disk) NewCycle(_ context.Context, name string) (Cycle, error) {
	c := &cycle{disk: d, dir: filepath.Join(d.trash(), name)}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, diskerror.Error("blob.NewCycle", err)
	}
	return c, nil
}

// Adopt implements Medium. If the previous collection is still running, it loses its
// directory, and its Condemn and Bury calls have no effect. Ages are computed with the
// clock of the file system, not of this host.
func (d *disk) Adopt(_ context.Context, name string, own func(name string) bool, forsaken time.Duration) (Cycle, error) {
	entries, err := os.ReadDir(d.trash())
	if err != nil || len(entries) == 0 {
		return nil, errs.WrapAs(errs.Unavailable, "blob.Adopt", err)
	}
	now, err := clockOf(d.incoming())
	if err != nil {
		return nil, diskerror.Error("blob.Adopt", err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || !own(e.Name()) && now.Sub(fi.ModTime()) < forsaken {
			continue
		}
		c := &cycle{disk: d, dir: filepath.Join(d.trash(), name)}
		if err := os.Rename(filepath.Join(d.trash(), e.Name()), c.dir); err == nil {
			return c, nil
		}
	}
	return nil, nil
}

func (c *cycle) path(f File) string { return filepath.Join(c.dir, f.Sum+string(f.Form)) }

// Condemn implements Cycle: it moves the file into the trash.
func (c *cycle) Condemn(_ context.Context, f File) error {
	err := os.Rename(c.disk.path(f.Sum, f.Form), c.path(f))
	if !errors.Is(err, fs.ErrNotExist) {
		return errs.WrapAs(errs.Unavailable, "blob.Condemn", err)
	}
	_, err = os.Stat(c.dir)
	return errs.WrapAs(errs.Unavailable, "blob.Condemn", err) // fails when another process has adopted the cycle
}

// Condemned implements Cycle.
func (c *cycle) Condemned(ctx context.Context) iter.Seq2[File, error] { return filesIn(ctx, c.dir) }

// Restore implements Cycle: it moves the file back.
func (c *cycle) Restore(_ context.Context, f File) error {
	return gone("blob.Restore", os.Rename(c.path(f), c.disk.path(f.Sum, f.Form)))
}

// Bury implements Cycle.
func (c *cycle) Bury(_ context.Context, f File) (bytes int64, err error) {
	if fi, err := os.Stat(c.path(f)); err == nil {
		bytes = fi.Size()
	}
	return bytes, gone("blob.Bury", os.Remove(c.path(f)))
}

// End implements Cycle. It removes the empty directory of the cycle.
func (c *cycle) End(context.Context) error { return gone("blob.End", os.Remove(c.dir)) }
