package directory

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

var ref = content.TemplateRef{Group: "g", Name: "t"}

// room returns a scanner over a directory with one template that has one file.
func room(t *testing.T) (s *scanner, into storage, dir string) {
	t.Helper()
	dir = t.TempDir()
	blobs, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "g", "t", "sub", "f"), "mine")
	return &scanner{seen: map[string]hashed{}, limits: content.VersionLimits(), now: time.Now, lease: lease}, cellar{blobs}, dir
}

// cellar stores content as a publish does.
type cellar struct{ *blob.Store }

func (cellar) stored(context.Context, content.Content) (bool, error) { return true, nil }

func (c cellar) add(ctx context.Context, r io.Reader, limit int64) (content.Content, error) {
	return c.Store.Add(ctx, r, limit, func(string) {})
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestNothingOutsideIsReadThroughADirectoryThatBecameALink(t *testing.T) {
	s, into, dir := room(t)
	outside := t.TempDir()
	put(t, filepath.Join(outside, "f"), "not mine")
	for _, swapped := range []string{"g", "g/t"} {
		t.Run(swapped, func(t *testing.T) {
			at := filepath.Join(dir, swapped)
			if err := errors.Join(os.Rename(at, at+".away"), os.Symlink(outside, at)); err != nil {
				t.Fatal(err)
			}
			if m, err := s.scan(t.Context(), dir, ref, into); err == nil {
				t.Errorf("read %+v", m.Entries)
			}
			if err := errors.Join(os.Remove(at), os.Rename(at+".away", at)); err != nil {
				t.Fatal(err)
			}
		})
	}
	// In a template, a symbolic link is an entry. The scanner never reads a file through a
	// link, even if the walk saw a regular file there before.
	top, err := os.OpenRoot(filepath.Join(dir, "g", "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	fi, err := top.Lstat("sub/f")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "g", "t", "sub")), os.Symlink(outside, filepath.Join(dir, "g", "t", "sub"))); err != nil {
		t.Fatal(err)
	}
	if sum, err := (&tree{scanner: s, storage: into, root: top, path: "t"}).file(t.Context(), "sub/f", fi); err == nil {
		t.Errorf("read %s", sum.SHA256)
	}
}

func TestAPipeInPlaceOfAFileHoldsNobodyUp(t *testing.T) {
	s, into, dir := room(t)
	s.lease = func(*os.File) (bool, bool) { t.Error("a pipe was taken for a file"); return true, true }
	top, err := os.OpenRoot(filepath.Join(dir, "g", "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	fi, err := top.Lstat("sub/f")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "g", "t", "sub", "f")
	if err := errors.Join(os.Remove(name), mkfifo(name)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&tree{scanner: s, storage: into, root: top, path: "t"}).file(t.Context(), "sub/f", fi); !errors.Is(err, errChanging) {
		t.Errorf("%v", err)
	}
}

func TestWhereTheKernelDoesNotTellOfWritersFilesMustHaveSettled(t *testing.T) {
	s, into, dir := room(t)
	s.lease = func(*os.File) (quiet, known bool) { return false, false }
	if _, err := s.scan(t.Context(), dir, ref, into); !errors.Is(err, errChanging) {
		t.Errorf("a file that was just written: %v", err)
	}
	s.now = func() time.Time { return time.Now().Add(settled) }
	if m, err := s.scan(t.Context(), dir, ref, into); err != nil || len(m.Entries) != 1 {
		t.Errorf("%+v, %v", m.Entries, err)
	}
}

func TestAScanEndsWithItsContext(t *testing.T) {
	s, into, dir := room(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m, err := s.scan(ctx, dir, ref, into); !errs.Is(err, errs.Canceled) {
		t.Errorf("%+v, %v", m.Entries, err)
	}
	if m, err := s.scan(t.Context(), dir, ref, into); err != nil || len(m.Entries) != 1 {
		t.Errorf("another one after it: %+v, %v", m.Entries, err)
	}
}

func TestADirectoryTheKernelRefusesToWatchHidesNoOther(t *testing.T) {
	s, _, dir := room(t)
	put(t, filepath.Join(dir, "g", "a", "f"), "")
	var told counter
	d := &Directory{cfg: Config{Dir: dir, Log: slog.New(&told)}, scanner: *s, complained: map[string]string{}}
	watched := map[string]bool{}
	for range 2 {
		d.watchTree(func(p string) error {
			if filepath.Base(p) == "a" {
				return errors.New("no space left on device")
			}
			watched[p] = true
			return nil
		}, dir)
	}
	for _, p := range []string{".", "g", "g/t", "g/t/sub"} {
		if !watched[filepath.Join(dir, p)] {
			t.Errorf("%s is not watched", p)
		}
	}
	if told.n != 1 {
		t.Errorf("told %d times", told.n)
	}
	d.watchTree(func(string) error { return fs.ErrNotExist }, dir)
	if told.n != 1 {
		t.Error("what vanished was complained about")
	}
}
