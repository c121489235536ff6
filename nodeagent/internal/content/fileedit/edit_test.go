package fileedit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/files"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
)

// desk is an editor with one static directory, next to a file that must not change.
type desk struct {
	*Editor
	place   Place
	outside string
	data    string
	now     time.Time
	free    int64
}

func (d *desk) open(t testing.TB) *desk {
	t.Helper()
	e, err := Open(Config{
		Dir: filepath.Join(d.data, "fileversions"), MaxBytes: 1 << 20, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return d.now }, Free: func(string) (int64, error) { return d.free, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Editor = e
	return d
}

func newDesk(t testing.TB, content map[string]string) *desk {
	t.Helper()
	d := &desk{data: t.TempDir(), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), free: 1 << 40}
	dir := filepath.Join(d.data, "static", "lobby", "lobby-1")
	d.outside = filepath.Join(d.data, "static", "outside")
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(d.outside, []byte("not yours"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, text := range content {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o750), os.WriteFile(at, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	d.place = Place{Viewer: files.Viewer{Dir: dir}, Group: "lobby", Name: "lobby-1", Plan: fleet.Plan{Static: true}}
	d.open(t)
	t.Cleanup(func() { d.Close() })
	return d
}

func (d *desk) put(t testing.TB, w client.FileWrite, text string) (client.FileChange, error) {
	t.Helper()
	return d.Write(t.Context(), d.place, w, strings.NewReader(text))
}

func (d *desk) edit(e client.FileEdit) (client.FileChange, error) {
	return d.Edit(context.Background(), d.place, e)
}

// has compares a file; "" means that it must not exist.
func (d *desk) has(t testing.TB, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(d.place.Dir, name))
	if want == "" && !errors.Is(err, os.ErrNotExist) || want != "" && (err != nil || string(got) != want) {
		t.Errorf("%s: %q, %v, want %q", name, got, err, want)
	}
}

func (d *desk) etag(t testing.TB, name string) string {
	t.Helper()
	c, err := d.place.Read(files.Query{Path: name, Bytes: 1})
	if err != nil || c.ETag == "" {
		t.Fatal(err)
	}
	return c.ETag
}

// unharmed checks that nothing outside changed, and that nothing waits in the staging directory.
func (d *desk) unharmed(t testing.TB) {
	t.Helper()
	if b, err := os.ReadFile(d.outside); err != nil || string(b) != "not yours" {
		t.Errorf("outside: %q, %v", b, err)
	}
	if left, err := os.ReadDir(filepath.Join(d.data, "fileversions", stagingDir)); err != nil || len(left) > 0 {
		t.Errorf("staging: %v, %v", left, err)
	}
}

func TestAWriteReplacesAFileAndKeepsItsModeAndContent(t *testing.T) {
	d := newDesk(t, map[string]string{"server.properties": "a=1", "run.sh": "#!/bin/sh"})
	if err := os.Chmod(filepath.Join(d.place.Dir, "run.sh"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	first := d.etag(t, "server.properties")
	done, err := d.put(t, client.FileWrite{Path: "server.properties", IfMatch: first}, "a=2")
	if err != nil || done.Created || done.Version == "" || done.Size != 3 || done.ETag != d.etag(t, "server.properties") || done.ETag == first {
		t.Errorf("%+v, %v", done, err)
	}
	d.has(t, "server.properties", "a=2")
	if _, err := d.put(t, client.FileWrite{Path: "run.sh"}, "#!/bin/bash"); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(filepath.Join(d.place.Dir, "run.sh")); err != nil || fi.Mode() != 0o755 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	done, err = d.put(t, client.FileWrite{Path: "plugins/a/config.yml", Only: true}, "x: 1")
	if err != nil || !done.Created || done.Version != "" {
		t.Errorf("%+v, %v", done, err)
	}
	d.has(t, "plugins/a/config.yml", "x: 1")
	d.unharmed(t)
}

func TestAWriteThroughALinkReplacesWhatItLeadsTo(t *testing.T) {
	d := newDesk(t, map[string]string{"deep/real": "old"})
	if err := os.Symlink("deep/real", filepath.Join(d.place.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	done, err := d.put(t, client.FileWrite{Path: "link", IfMatch: d.etag(t, "link")}, "new")
	if err != nil || done.Path != "deep/real" {
		t.Errorf("%+v, %v", done, err)
	}
	d.has(t, "deep/real", "new")
	d.has(t, "link", "new")
	if _, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: "link", IfMatch: d.etag(t, "link")}); err != nil {
		t.Error(err)
	}
	d.has(t, "link", "")
	d.has(t, "deep/real", "new")
}

func TestHardLinksKeepTheOldContent(t *testing.T) {
	d := newDesk(t, nil)
	if err := os.Link(d.outside, filepath.Join(d.place.Dir, "same")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.put(t, client.FileWrite{Path: "same"}, "mine"); err != nil {
		t.Error(err)
	}
	d.has(t, "same", "mine")
	d.unharmed(t)
}

func TestHostilePathsChangeNothing(t *testing.T) {
	d := newDesk(t, map[string]string{"dir/file": "x", ".orrery-lock": "claim", "deep/.orrery/token": "x"})
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(d.place.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("../../outside", "out")
	link("/etc", "etc")
	link("..", "up")
	link("circle", "circle")
	link(".orrery-lock", "lock")
	link("deep/.orrery", "agent")
	link("nowhere", "broken")
	if err := errors.Join(unix.Mkfifo(filepath.Join(d.place.Dir, "pipe"), 0o600),
		os.Link(filepath.Join(d.place.Dir, ".orrery-lock"), filepath.Join(d.place.Dir, "hard"))); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(d.place.Dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	outside := []string{
		"../x", "../../outside", "dir/../../../outside", "/etc/passwd", "out", "etc/orrery-test", "up/x", "circle", "circle/x",
		"a\x00b", "..", "", ".", "/", "./", "dir/", "a\nb", "\xff", strings.Repeat("a", 256), strings.Repeat("a/", 70) + "b", strings.Repeat("a", 5000),
		".orrery-lock", "lock", "hard", "agent/token", "agent/new", "deep/.orrery/token", "dir/.orrery-x", ".orrery/x/y", "broken/x", "broken",
		"dir", "pipe", "socket", "pipe/x", "dir/file/x",
	}
	kinds := map[errs.Kind]bool{errs.Malformed: true, errs.Invalid: true, errs.NotFound: true, errs.Conflict: true}
	for _, name := range outside {
		if _, err := d.put(t, client.FileWrite{Path: name}, "evil"); !kinds[errs.KindOf(err)] || errs.FieldOf(err) != "path" {
			t.Errorf("write %.30q: %v", name, err)
		}
	}
	for _, name := range []string{"../../outside", "up/x", "etc/hostname", "", ".", "./.", "dir/..", ".orrery-lock", "hard", "agent/token", "deep/.orrery", "none", "circle/x"} {
		for _, op := range []client.FileEdit{{Op: client.FileDelete, Path: name}, {Op: client.FileRename, Path: name, To: "moved"}} {
			if _, err := d.edit(op); !kinds[errs.KindOf(err)] || errs.FieldOf(err) != "path" {
				t.Errorf("%s %.30q: %v", op.Op, name, err)
			}
		}
	}
	for _, name := range outside {
		if _, err := d.edit(client.FileEdit{Op: client.FileRename, Path: "dir/file", To: name}); err == nil {
			t.Errorf("renamed to %.30q", name)
		}
		if _, err := d.edit(client.FileEdit{Op: client.FileMkdir, Path: name}); err == nil {
			t.Errorf("made %.30q", name)
		}
	}
	d.has(t, ".orrery-lock", "claim")
	d.has(t, "deep/.orrery/token", "x")
	d.has(t, "dir/file", "x")
	d.unharmed(t)
	if n, _ := d.Kept(); n != 0 {
		t.Errorf("%d versions are kept", n)
	}
}

// TestDirectoriesThatTurnIntoLinksLeadNowhere replaces a directory by a link to the outside all the
// time, while files are written, renamed and deleted below it.
func TestDirectoriesThatTurnIntoLinksLeadNowhere(t *testing.T) {
	d := newDesk(t, map[string]string{"dir/outside": "x", "dir/a": "x"})
	dir, aside := filepath.Join(d.place.Dir, "dir"), filepath.Join(d.place.Dir, "aside")
	var end atomic.Bool
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for !end.Load() {
			_ = os.Rename(dir, aside)
			_ = os.Symlink(filepath.Dir(d.outside), dir)
			_ = os.Remove(dir)
			_ = os.Rename(aside, dir)
		}
	})
	for n := range 300 {
		_, _ = d.put(t, client.FileWrite{Path: "dir/outside", Discard: true}, "evil")
		_, _ = d.edit(client.FileEdit{Op: client.FileRename, Path: "dir/a", To: "dir/outside"})
		_, _ = d.edit(client.FileEdit{Op: client.FileDelete, Path: "dir/outside", Discard: n%2 == 0})
		_, _ = d.edit(client.FileEdit{Op: client.FileMkdir, Path: fmt.Sprintf("dir/new-%d", n)})
	}
	end.Store(true)
	flipping.Wait()
	d.unharmed(t)
	entries, err := os.ReadDir(filepath.Dir(d.outside))
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestOfConcurrentWritersWithOneETagOneSucceeds(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "0"})
	etag := d.etag(t, "a")
	var wins atomic.Int64
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			_, err := d.put(t, client.FileWrite{Path: "a", IfMatch: etag}, fmt.Sprint(n))
			switch {
			case err == nil:
				wins.Add(1)
			case !errs.Is(err, errs.Conflict) || errs.FieldOf(err) != client.Stale:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d writers succeeded", wins.Load())
	}
	if _, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: "a", IfMatch: etag}); errs.FieldOf(err) != client.Stale {
		t.Errorf("delete: %v", err)
	}
	if _, err := d.edit(client.FileEdit{Op: client.FileRename, Path: "a", To: "b", IfMatch: etag}); errs.FieldOf(err) != client.Stale {
		t.Errorf("rename: %v", err)
	}
	if _, err := d.put(t, client.FileWrite{Path: "none", IfMatch: "*"}, "x"); errs.FieldOf(err) != client.Stale {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := d.put(t, client.FileWrite{Path: "a", Only: true}, "x"); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("create only: %v", err)
	}
	d.unharmed(t)
}

func TestOfConcurrentCreatorsOneSucceeds(t *testing.T) {
	d := newDesk(t, nil)
	var wins atomic.Int64
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := d.put(t, client.FileWrite{Path: "x/new", Only: true}, "x"); err == nil {
				wins.Add(1)
			} else if !errs.Is(err, errs.AlreadyExists) && !errs.Is(err, errs.Conflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d writers created it", wins.Load())
	}
}

func TestTheMaskOfASecretIsNotWritten(t *testing.T) {
	d := newDesk(t, map[string]string{"db": "password=s3cret-value\nport=1", "open": "a"})
	d.place.Mask = secrets.NewMask(map[string]string{"A": "s3cret-value"})
	if c, err := d.place.Read(files.Query{Path: "db", Bytes: 100}); err != nil || !c.Masked {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := d.put(t, client.FileWrite{Path: "db"}, "password=***\nport=2"); !errs.Is(err, errs.Conflict) || errs.FieldOf(err) != "" {
		t.Error(err)
	}
	d.has(t, "db", "password=s3cret-value\nport=1")
	for path, text := range map[string]string{"db": "password=s3cret-value\nport=2", "open": "***"} {
		if _, err := d.put(t, client.FileWrite{Path: path}, text); err != nil {
			t.Error(err)
		}
	}
	d.unharmed(t)
}

func TestFilesMoveAndDirectoriesAreMade(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1", "b": "2", "world/level.dat": "3"})
	for _, c := range []struct {
		edit client.FileEdit
		want errs.Kind
	}{
		{client.FileEdit{Op: client.FileRename, Path: "a", To: "b"}, errs.AlreadyExists},
		{client.FileEdit{Op: client.FileRename, Path: "a", To: "a"}, errs.AlreadyExists},
		{client.FileEdit{Op: client.FileRename, Path: "world", To: "world/old"}, errs.Invalid},
		{client.FileEdit{Op: client.FileRename, Path: "a"}, errs.Malformed},
		{client.FileEdit{Op: client.FileMkdir, Path: "world"}, errs.AlreadyExists},
		{client.FileEdit{Op: client.FileMkdir, Path: "a/b"}, errs.NotFound},
		{client.FileEdit{Op: "format", Path: "a"}, errs.Invalid},
	} {
		if _, err := d.edit(c.edit); !errs.Is(err, c.want) && !errs.Is(err, errs.Conflict) {
			t.Errorf("%+v: %v", c.edit, err)
		}
	}
	for _, e := range []client.FileEdit{
		{Op: client.FileRename, Path: "a", To: "new/dir/a"}, {Op: client.FileRename, Path: "world", To: "worlds/old/"}, {Op: client.FileMkdir, Path: "x/y/z/"},
	} {
		if _, err := d.edit(client.FileEdit{Op: e.Op, Path: e.Path, To: e.To, DryRun: true}); err != nil {
			t.Error(err)
		}
		if done, err := d.edit(e); err != nil || !done.Created {
			t.Errorf("%+v, %v", done, err)
		}
	}
	d.has(t, "a", "")
	d.has(t, "b", "2")
	d.has(t, "new/dir/a", "1")
	d.has(t, "worlds/old/level.dat", "3")
	if fi, err := os.Stat(filepath.Join(d.place.Dir, "x/y/z")); err != nil || !fi.IsDir() {
		t.Error(err)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1", "dir/b": "2"})
	if _, err := d.put(t, client.FileWrite{Path: "a", DryRun: true}, ""); err != nil {
		t.Error(err)
	}
	if done, err := d.put(t, client.FileWrite{Path: "new/dir/c", DryRun: true}, ""); err != nil || !done.Created {
		t.Errorf("%+v, %v", done, err)
	}
	for _, path := range []string{"a", "dir"} {
		if _, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: path, DryRun: true}); err != nil {
			t.Error(err)
		}
	}
	d.has(t, "a", "1")
	d.has(t, "dir/b", "2")
	d.has(t, "new", "")
	if n, _ := d.Kept(); n != 0 {
		t.Errorf("%d versions", n)
	}
}

func TestVersionsAreRestored(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1", "world/level.dat": "big", "world/region/r": "x"})
	if err := os.Chmod(filepath.Join(d.place.Dir, "a"), 0o751); err != nil {
		t.Fatal(err)
	}
	one, err := d.put(t, client.FileWrite{Path: "a"}, "22")
	if err != nil {
		t.Fatal(err)
	}
	d.now = d.now.Add(time.Minute)
	if _, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: "a"}); err != nil {
		t.Fatal(err)
	}
	gone, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: "world"})
	if err != nil || gone.Version == "" {
		t.Fatal(gone, err)
	}
	d.Close()
	d.open(t) // the next agent
	list, err := d.Versions(d.place, "a")
	if err != nil || len(list.Versions) != 2 || list.Versions[0].Op != client.FileDelete || list.Versions[0].Size != 2 || list.Versions[1].ID != one.Version ||
		list.Versions[1].Op != opWrite || list.Versions[1].Until.Sub(list.Versions[1].At) != keptFor {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := d.Versions(d.place, ""); err != nil || len(list.Versions) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, bytes := d.Kept(); bytes != 1+2+4 {
		t.Errorf("%d bytes", bytes)
	}
	done, err := d.edit(client.FileEdit{Op: client.FileRestore, Version: one.Version})
	if err != nil || done.Path != "a" || !done.Created {
		t.Errorf("%+v, %v", done, err)
	}
	d.has(t, "a", "1")
	if fi, err := os.Stat(filepath.Join(d.place.Dir, "a")); err != nil || fi.Mode().Perm() != 0o751 {
		t.Errorf("%v, %v", fi, err)
	}
	done, err = d.edit(client.FileEdit{Op: client.FileRestore, Version: list.Versions[0].ID, IfMatch: done.ETag})
	if err != nil || done.Version == "" {
		t.Errorf("%+v, %v", done, err)
	}
	d.has(t, "a", "22")
	if _, err := d.edit(client.FileEdit{Op: client.FileRestore, Version: one.Version, IfMatch: "old"}); errs.FieldOf(err) != client.Stale {
		t.Error(err)
	}
	if _, err := d.edit(client.FileEdit{Op: client.FileRestore, Version: gone.Version}); err != nil {
		t.Error(err)
	}
	d.has(t, "world/level.dat", "big")
	d.has(t, "world/region/r", "x")
	other := d.place
	other.Name = "lobby-2"
	for _, id := range []string{gone.Version, "", "../../x"} {
		if _, err := d.edit(client.FileEdit{Op: client.FileRestore, Version: id}); !errs.Is(err, errs.NotFound) || errs.FieldOf(err) != "version" {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := d.Edit(t.Context(), other, client.FileEdit{Op: client.FileRestore, Version: one.Version}); !errs.Is(err, errs.NotFound) {
		t.Errorf("another instance's version: %v", err)
	}
	d.unharmed(t)
}

func TestADirectoryIsRestoredOnlyWhereNothingIs(t *testing.T) {
	d := newDesk(t, map[string]string{"world/level.dat": "old"})
	gone, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: "world/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.put(t, client.FileWrite{Path: "world/level.dat"}, "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.edit(client.FileEdit{Op: client.FileRestore, Version: gone.Version}); !errs.Is(err, errs.AlreadyExists) {
		t.Error(err)
	}
	d.has(t, "world/level.dat", "new")
}

func TestVersionsAreBoundedInTimeAndBytes(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "", "big": strings.Repeat("x", 1<<20+1), "dir/big": strings.Repeat("x", 1<<20+1)})
	half := strings.Repeat("x", 1<<19)
	for range 4 {
		d.now = d.now.Add(time.Minute)
		if _, err := d.put(t, client.FileWrite{Path: "a"}, half); err != nil {
			t.Fatal(err)
		}
	}
	if n, bytes := d.Kept(); n != 2 || bytes != 1<<20 {
		t.Errorf("%d versions with %d bytes", n, bytes)
	}
	for _, path := range []string{"big", "dir"} {
		if _, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: path}); !errs.Is(err, errs.TooLarge) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: path, Discard: true}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		d.has(t, path, "")
	}
	d.now = d.now.Add(keptFor - time.Minute)
	if d.expire(); d.count() != 1 {
		t.Errorf("%d versions after a day", d.count())
	}
	d.now = d.now.Add(time.Minute)
	if d.expire(); d.count() != 0 {
		t.Errorf("%d versions after a day", d.count())
	}
	if left, err := os.ReadDir(filepath.Join(d.data, "fileversions")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	d.unharmed(t)
}

func (d *desk) count() int {
	n, _ := d.Kept()
	return n
}

func TestAFullDiskRefusesWrites(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1"})
	d.free = MinFree - 1
	if _, err := d.put(t, client.FileWrite{Path: "a"}, "2"); !errs.Is(err, errs.Exhausted) {
		t.Error(err)
	}
	if _, err := d.edit(client.FileEdit{Op: client.FileMkdir, Path: "x"}); !errs.Is(err, errs.Exhausted) {
		t.Error(err)
	}
	d.has(t, "a", "1")
	if _, err := d.edit(client.FileEdit{Op: client.FileDelete, Path: "a", Discard: true}); err != nil {
		t.Errorf("a delete frees space: %v", err)
	}
	d.unharmed(t)
}

// broken is a body that ends with an error after some bytes.
type broken struct{ left int }

func (b *broken) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := min(len(p), b.left)
	b.left -= n
	return n, nil
}

func TestAnIncompleteUploadChangesNothing(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1"})
	if _, err := d.Write(t.Context(), d.place, client.FileWrite{Path: "a"}, &broken{100_000}); !errs.Is(err, errs.Malformed) {
		t.Error(err)
	}
	d.has(t, "a", "1")
	d.unharmed(t)
}

// pattern is an endless body that is not held in memory.
type pattern struct{ n byte }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		p.n += 7
		b[i] = p.n
	}
	return len(b), nil
}

func TestALargeUploadIsStreamed(t *testing.T) {
	d := newDesk(t, nil)
	const size = 64 << 20
	sum := sha256.New()
	done, err := d.Write(t.Context(), d.place, client.FileWrite{Path: "world.zip"}, io.TeeReader(io.LimitReader(&pattern{}, size), sum))
	if err != nil || done.Size != size {
		t.Fatalf("%+v, %v", done, err)
	}
	f, err := os.Open(filepath.Join(d.place.Dir, "world.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := sha256.New()
	if _, err := io.Copy(got, f); err != nil || !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Errorf("another content, %v", err)
	}
	if _, err := d.stage(t.Context(), &pattern{}, 1<<20); !errs.Is(err, errs.TooLarge) {
		t.Error(err)
	}
	d.unharmed(t)
}

func TestAnotherFilesystemIsWrittenByCopy(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1"})
	at, err := d.place.find("a", true, true)
	if err != nil {
		t.Fatal(err)
	}
	defer at.close()
	s, err := d.stage(t.Context(), strings.NewReader("2"), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer s.discard()
	if err := errors.Join(s.own(at, ""), s.copyTo(at, unix.Renameat)); err != nil {
		t.Fatal(err)
	}
	d.has(t, "a", "2")
	if left, err := filepath.Glob(filepath.Join(d.place.Dir, ".orrery*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	d.unharmed(t)
}

func TestTheOwnerStays(t *testing.T) {
	if os.Geteuid() != 0 && os.Getenv("ORRERY_CI") == "" {
		t.Skip("only root can give files to other users")
	}
	d := newDesk(t, map[string]string{"a": "1"})
	if err := errors.Join(os.Chown(filepath.Join(d.place.Dir, "a"), 12345, 12346), os.Chown(d.place.Dir, 12347, 12348)); err != nil {
		t.Fatal(err)
	}
	owner := func(name string, uid, gid uint32) {
		t.Helper()
		fi, err := os.Stat(filepath.Join(d.place.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if st := fi.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != gid {
			t.Errorf("%s belongs to %d:%d, want %d:%d", name, st.Uid, st.Gid, uid, gid)
		}
	}
	for _, path := range []string{"a", "new", "in/dir/new"} {
		if _, err := d.put(t, client.FileWrite{Path: path}, "2"); err != nil {
			t.Fatal(err)
		}
	}
	owner("a", 12345, 12346)
	owner("new", 12347, 12348)
	owner("in", 12347, 12348)
	d.place.User = "12349"
	for _, path := range []string{"a", "mine", "my/dir/new"} {
		if _, err := d.put(t, client.FileWrite{Path: path}, "3"); err != nil {
			t.Fatal(err)
		}
	}
	owner("a", 12345, 12346)
	owner("mine", 12349, 12349)
	owner("my/dir", 12349, 12349)
}

// TestAnyChangesCanBeUndone makes random changes, and restores the first versions.
func TestAnyChangesCanBeUndone(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := newDesk(t, map[string]string{"a": "1", "b": "2"})
		want := map[string]string{"a": "1", "b": "2"}
		var undo []client.FileEdit
		for range rapid.IntRange(1, 8).Draw(r, "changes") {
			d.now = d.now.Add(time.Second)
			path := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "path")
			var done client.FileChange
			var err error
			if rapid.Bool().Draw(r, "delete") {
				done, err = d.edit(client.FileEdit{Op: client.FileDelete, Path: path})
			} else {
				done, err = d.put(t, client.FileWrite{Path: path}, rapid.StringN(1, 20, 40).Draw(r, "text"))
			}
			if err != nil && !errs.Is(err, errs.NotFound) {
				r.Fatal(err)
			}
			if done.Version != "" {
				undo = append(undo, client.FileEdit{Op: client.FileRestore, Version: done.Version})
			}
		}
		for n := range undo {
			if _, err := d.edit(undo[len(undo)-1-n]); err != nil {
				r.Fatal(err)
			}
		}
		for path, text := range want {
			if len(undo) > 0 {
				d.has(t, path, text)
			}
		}
		d.unharmed(t)
	})
}

func TestNothingChangesWhileItIsNotAllowed(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1"})
	conflict := errs.New(errs.Conflict, "it moves")
	d.place.Allowed = func() error { return conflict }
	for _, e := range []client.FileEdit{
		{Op: client.FileMkdir, Path: "b"}, {Op: client.FileRename, Path: "a", To: "b"}, {Op: client.FileDelete, Path: "a"},
	} {
		if _, err := d.edit(e); !errs.Is(err, errs.Conflict) {
			t.Errorf("%s: %v", e.Op, err)
		}
	}
	if _, err := d.put(t, client.FileWrite{Path: "a"}, "2"); !errs.Is(err, errs.Conflict) {
		t.Errorf("a write: %v", err)
	}
	calls := 0
	d.place.Allowed = func() error { // the move begins during the upload
		if calls++; calls > 1 {
			return conflict
		}
		return nil
	}
	if _, err := d.put(t, client.FileWrite{Path: "a"}, "2"); !errs.Is(err, errs.Conflict) {
		t.Errorf("a write that began before: %v", err)
	}
	d.has(t, "a", "1")
	d.has(t, "b", "")
}
