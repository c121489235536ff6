package configexport_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/nodeagent/internal/content/configexport"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

func (s *site) at(name string) string { return filepath.Join(s.Dir, name) }

func TestChangingFileIsReadAgainOrSkipped(t *testing.T) {
	s := newSite(t)
	long := time.Unix(1e9, 0)
	for _, name := range []string{"once", "always", "grows", "replaced", "still"} {
		s.write(name, "old old")
		if err := os.Chtimes(s.at(name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	reads := map[string]int{}
	s.AfterRead(func(name string) {
		var err error
		switch reads[name]++; {
		case name == "once" && reads[name] == 1, name == "always":
			err = os.WriteFile(s.at(name), []byte("new new"), 0o600) // same length as before
		case name == "grows":
			var f *os.File
			if f, err = os.OpenFile(s.at(name), os.O_WRONLY|os.O_APPEND, 0); err == nil {
				_, err = f.WriteString("more")
				err = errors.Join(err, f.Close())
			}
		case name == "replaced": // replaced by another file: the content that was read is complete
			err = errors.Join(os.WriteFile(s.at("next"), []byte("new new"), 0o600), os.Rename(s.at("next"), s.at(name)))
		}
		if err != nil {
			t.Error(err)
		}
	})
	files, skipped := s.must()
	if diff := cmp.Diff(map[string]string{"once": "new new", "still": "old old", "replaced": "old old"}, files); diff != "" {
		t.Error(diff)
	}
	const why = "changes while it is read: export this file again"
	if diff := cmp.Diff(map[string]string{"always": why, "grows": why}, skipped); diff != "" {
		t.Error(diff)
	}
	if want := map[string]int{"once": 2, "always": 3, "grows": 3, "replaced": 1, "still": 1}; !cmp.Equal(reads, want) {
		t.Errorf("read %v, want %v", reads, want)
	}
}

func TestRecentlyModifiedFileMayChangeUnseen(t *testing.T) {
	now := time.Unix(1e9, 0)
	for age, want := range map[time.Duration]bool{
		0: true, 19 * time.Millisecond: true, 20 * time.Millisecond: false, time.Hour: false,
		-time.Nanosecond: false, -time.Hour: false, // a wrong clock says nothing
	} {
		if got := configexport.Recent(now.Add(-age), now); got != want {
			t.Errorf("%s ago: %v", age, got)
		}
	}
}

func TestWriteWithEqualTimestampIsNoticed(t *testing.T) {
	s := newSite(t)
	stamp := time.Unix(1e9, 0)
	write := func(content string) error {
		return errors.Join(os.WriteFile(s.at("f"), []byte(content), 0o600), os.Chtimes(s.at("f"), stamp, stamp))
	}
	if err := write("old old"); err != nil {
		t.Fatal(err)
	}
	now, reads := stamp.Add(time.Millisecond), 0
	s.Now(func() time.Time { return now })
	s.AfterRead(func(string) {
		if reads++; reads == 1 {
			if err := write("new new"); err != nil {
				t.Error(err)
			}
			now = stamp.Add(time.Hour)
		}
	})
	files, _ := s.must()
	if diff := cmp.Diff(map[string]string{"f": "new new"}, files); diff != "" || reads != 2 {
		t.Errorf("read %d times: %s", reads, diff)
	}
}

func TestFileReplacedAfterListingIsSkipped(t *testing.T) {
	s := newSite(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "x"), []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "gone", "link", "pipe", "dir/x", "folder"} {
		s.write(name, "mine")
	}
	s.Original = func(_ context.Context, name string) (render.Original, error) {
		if name == "a" { // the directory is listed already
			if err := errors.Join(
				os.Remove(s.at("gone")), os.Remove(s.at("link")), os.Symlink(filepath.Join(outside, "x"), s.at("link")),
				os.Remove(s.at("pipe")), unix.Mkfifo(s.at("pipe"), 0o600),
				os.RemoveAll(s.at("dir")), os.Symlink(outside, s.at("dir")),
				os.Remove(s.at("folder")), os.Mkdir(s.at("folder"), 0o755),
			); err != nil {
				t.Error(err)
			}
		}
		return render.Original{}, nil
	}
	files, skipped := s.must()
	if diff := cmp.Diff(map[string]string{"a": "mine"}, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"link": "a link", "pipe": "not a file", "dir": "a link"}, skipped); diff != "" {
		t.Error(diff)
	}
}

func TestFileRemovedDuringExportIsNotReported(t *testing.T) {
	s := newSite(t)
	s.write("a", "1")
	s.write("b", "1")
	s.AfterRead(func(name string) {
		if name == "a" {
			if err := errors.Join(os.WriteFile(s.at("a"), []byte("12"), 0o600), os.Remove(s.at("a"))); err != nil {
				t.Error(err)
			}
		}
	})
	if files, skipped := s.must(); len(skipped) > 0 || !cmp.Equal(files, map[string]string{"b": "1"}) {
		t.Errorf("%v, left out %v", files, skipped)
	}
}

func TestHugeSparseFilesAreNotRead(t *testing.T) {
	s := newSite(t)
	for name, size := range map[string]int64{"huge": 1 << 40, "hole": 1 << 20} {
		s.write(name, "")
		if err := os.Truncate(s.at(name), size); err != nil {
			t.Fatal(err)
		}
	}
	read := map[string]bool{}
	s.AfterRead(func(name string) { read[name] = true })
	files, skipped := s.must()
	if diff := cmp.Diff(map[string]string{"huge": "larger than 1 MiB", "hole": "not text"}, skipped); diff != "" || len(files) > 0 {
		t.Error(files, diff)
	}
	if read["huge"] {
		t.Error("the huge file was read")
	}
	s.write("z", strings.Repeat("x", 10))
	s.AfterRead(func(name string) { // it grows before it is read again
		if name == "z" {
			if err := os.Truncate(s.at(name), 1<<40); err != nil {
				t.Error(err)
			}
		}
	})
	if _, skipped := s.must(); skipped["z"] != "larger than 1 MiB" && !strings.Contains(skipped["z"], "changes") {
		t.Errorf("skipped: %v", skipped)
	}
}

func TestUnreadableFilesAreReported(t *testing.T) {
	s := newSite(t)
	s.write("a", "1")
	s.write("closed/file", "1")
	s.write("secret", "1")
	if err := errors.Join(os.Chmod(s.at("closed"), 0o000), os.Chmod(s.at("secret"), 0o000), os.Chmod(s.at("a"), 0o644), os.Chmod(s.Dir, 0o755), os.Chmod(filepath.Dir(s.Dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	var files, skipped map[string]string
	as := func(do func()) { do() }
	if os.Geteuid() == 0 { // permissions do not apply to root
		as = func(do func()) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // the thread ends with the goroutine
				if err := unix.Setfsuid(61234); err != nil {
					t.Error(err)
				}
				do()
			}()
			<-done
		}
	}
	as(func() {
		files, skipped, _, _ = s.read()
	})
	if diff := cmp.Diff(map[string]string{"a": "1"}, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"closed": "cannot be read", "secret": "cannot be read"}, skipped); diff != "" {
		t.Error(diff)
	}
	if err := os.Chmod(s.at("closed"), 0o755); err != nil {
		t.Error(err)
	}
}
