package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
)

// claimed writes the lock file of an ended run.
func (s *site) claimed() *claim.Lock {
	s.t.Helper()
	l, err := claim.Take(s.dir, claim.Claim{Instance: "aaaaaa", Generation: 3, Epoch: 1, Node: "n1", DataUUID: "u"})
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func TestARestoredDirectoryIsTheOneThatWasBackedUp(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"world/level.dat": strings.Repeat("level", 100_000), "empty": "", ".hidden/ünï": "x"})
	s.claimed().Release()
	old := time.Unix(1_500_000_000, 123)
	if err := errors.Join(
		os.Symlink("world/level.dat", filepath.Join(s.dir, "link")), os.Symlink("/etc", filepath.Join(s.dir, "outside")),
		unix.Mkfifo(filepath.Join(s.dir, "pipe"), 0o600), os.Mkdir(filepath.Join(s.dir, "locked"), 0o700),
		os.Chmod(filepath.Join(s.dir, "empty"), 0o444), os.Chtimes(filepath.Join(s.dir, "world/level.dat"), old, old),
		os.Chmod(filepath.Join(s.dir, "locked"), 0o500), os.Chtimes(filepath.Join(s.dir, "locked"), old, old),
	); err != nil {
		t.Fatal(err)
	}
	want := s.tree(s.dir)
	b := s.create(client.NewBackup{By: "admin"})
	if b.State != client.BackupComplete || b.By != "admin" || b.Files != len(want)-1 || b.Bytes != 500_001 || b.Size == 0 || b.Size > 100_000 || b.Changed != 0 || b.Message != "" {
		t.Fatalf("%+v, %d entries", b, len(want))
	}
	if info, err := os.Stat(b.Path); err != nil || info.Size() != b.Size || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(s.dir, "world")), os.WriteFile(filepath.Join(s.dir, "new"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	changed := s.tree(s.dir)
	if dry, err := s.Restore(s.place, b.ID, true); err != nil || dry.State != client.BackupComplete {
		t.Errorf("a dry run: %+v, %v", dry, err)
	}
	same(t, s.tree(s.dir), changed)
	if b = s.await(s.Restore(s.place, b.ID, false)); b.State != client.BackupComplete || b.Restored.IsZero() || b.Message != "" {
		t.Errorf("%+v", b)
	}
	same(t, s.tree(s.dir), want)
	s.aside(changed)
	s.stop()
	s.open() // the next agent
	if all := s.backups(); len(all) != 1 || all[0] != b {
		t.Errorf("%+v, want %+v", all, b)
	}
}

// aside checks that a directory was set aside, and that a restore left nothing else.
func (s *site) aside(want map[string]string) {
	s.t.Helper()
	kept, _ := filepath.Glob(filepath.Join(s.data, "moved", "*"))
	if len(kept) != 1 {
		s.t.Fatalf("set aside: %q", kept)
	}
	same(s.t, s.tree(kept[0]), want)
	if left, _ := os.ReadDir(s.restoring()); len(left) > 0 {
		s.t.Errorf("the restore left %v", left)
	}
}

func TestARestoreWithoutADirectoryCreatesIt(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	want := s.tree(s.dir)
	b := s.create(client.NewBackup{})
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if b = s.await(s.Restore(s.place, b.ID, false)); b.Restored.IsZero() {
		t.Errorf("%+v", b)
	}
	same(t, s.tree(s.dir), want)
	if _, err := s.Create(Place{Group: "survival", Name: "survival-2", Console: s.on, Allowed: s.place.Allowed}, client.NewBackup{}); !errs.Is(err, errs.Conflict) {
		t.Errorf("a backup of what does not exist: %v", err)
	}
}

func TestADirectoryInUseIsNotReplaced(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	b := s.create(client.NewBackup{})
	s.write(map[string]string{"a": "2"})
	lock := s.claimed()
	want := s.tree(s.dir)
	refused := func(what string) {
		t.Helper()
		if _, err := s.Restore(s.place, b.ID, false); !errs.Is(err, errs.Conflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("processes hold the directory")
	lock.Release()
	s.on.running = true
	refused("a server runs")
	s.on.running = false
	s.place.Allowed = func() error { return errs.New(errs.Conflict, "it moves") }
	refused("it moves")
	if _, err := s.Create(s.place, client.NewBackup{}); !errs.Is(err, errs.Conflict) {
		t.Errorf("a backup of what moves: %v", err)
	}
	same(t, s.tree(s.dir), want)
	s.place.Allowed = func() error { return nil }
	s.mu.Lock()
	s.busy[s.place.key()] = true
	s.mu.Unlock()
	refused("another job runs")
	for _, dry := range []bool{true, false} {
		if _, err := s.Create(s.place, client.NewBackup{DryRun: dry}); !errs.Is(err, errs.Conflict) {
			t.Errorf("two jobs: %v", err)
		}
	}
}

func TestAStartDuringTheExchangeIsNoticed(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	staging := filepath.Join(s.restoring(), "x")
	if err := os.MkdirAll(filepath.Join(staging, treeName), 0o700); err != nil {
		t.Fatal(err)
	}
	lock := s.claimed()
	defer lock.Release()
	if err := s.exchange(t.Context(), s.place, staging); !errs.Is(err, errs.Conflict) {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(filepath.Join(s.dir, "a")); err != nil || string(b) != "1" {
		t.Errorf("%q, %v", b, err)
	}
}

// forge replaces the archive of a backup by one with these entries, and its record by one that fits.
func (s *site) forge(b client.Backup, files int, entries ...tar.Header) {
	s.t.Helper()
	var out bytes.Buffer
	compressed, err := zstd.NewWriter(&out)
	if err != nil {
		s.t.Fatal(err)
	}
	w := tar.NewWriter(compressed)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = 1
		}
		err = errors.Join(err, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, werr := io.WriteString(w, "x")
			err = errors.Join(err, werr)
		}
	}
	if err := errors.Join(err, w.Close(), compressed.Close(), os.WriteFile(b.Path, out.Bytes(), 0o600)); err != nil {
		s.t.Fatal(err)
	}
	sum := sha256.Sum256(out.Bytes())
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[s.place.key()][b.ID]
	one.SHA256, one.Files = hex.EncodeToString(sum[:]), files
}

func TestADamagedArchiveIsNotRestored(t *testing.T) {
	top := tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o750}
	for name, damage := range map[string]func(s *site, b client.Backup){
		"another byte": func(s *site, b client.Backup) {
			text, err := os.ReadFile(b.Path)
			if err != nil {
				t.Fatal(err)
			}
			text[len(text)/2] ^= 1
			if err := os.WriteFile(b.Path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a missing end": func(_ *site, b client.Backup) {
			if err := os.Truncate(b.Path, b.Size/2); err != nil {
				t.Fatal(err)
			}
		},
		"no archive":      func(_ *site, b client.Backup) { _ = os.Remove(b.Path) },
		"too few entries": func(s *site, b client.Backup) { s.forge(b, 2, top) },
		"a path outside": func(s *site, b client.Backup) {
			s.forge(b, 2, top, tar.Header{Name: "../../../evil", Typeflag: tar.TypeReg, Mode: 0o600})
		},
		"a path through a link": func(s *site, b client.Backup) {
			s.forge(b, 3, top, tar.Header{Name: "out", Linkname: s.data, Typeflag: tar.TypeSymlink}, tar.Header{Name: "out/evil", Typeflag: tar.TypeReg, Mode: 0o600})
		},
		"a device": func(s *site, b client.Backup) {
			s.forge(b, 2, top, tar.Header{Name: "null", Typeflag: tar.TypeChar, Mode: 0o600})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write(map[string]string{"a": strings.Repeat("x", 10_000), "b/c": "2"})
			b := s.create(client.NewBackup{})
			s.write(map[string]string{"a": "now"})
			want := s.tree(s.dir)
			damage(s, b)
			if b = s.await(s.Restore(s.place, b.ID, false)); !strings.HasPrefix(b.Message, "could not be restored: ") || !b.Restored.IsZero() || b.State != client.BackupComplete {
				t.Errorf("%+v", b)
			}
			same(t, s.tree(s.dir), want)
			if _, err := os.Stat(filepath.Join(s.data, "evil")); err == nil {
				t.Error("a file outside was written")
			}
			if left, _ := os.ReadDir(s.restoring()); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestAnOddOrLaterLockFileRefusesTheRestore(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	b := s.create(client.NewBackup{})
	s.claimed().Release()
	lock := filepath.Join(s.dir, claim.FileName)
	if err := errors.Join(os.Remove(lock), unix.Mkfifo(lock, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Restore(s.place, b.ID, false); !errs.Is(err, errs.Invalid) {
		t.Errorf("a pipe as the lock file: %v", err)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	later, err := claim.Take(s.dir, claim.Claim{Instance: "aaaaaa", Generation: 4, Epoch: 1, Node: "n1", DataUUID: "u"})
	if err != nil {
		t.Fatal(err)
	}
	later.Release()
	if b = s.await(s.Restore(s.place, b.ID, false)); !strings.Contains(b.Message, "prepared for another start") {
		t.Errorf("a start meanwhile: %+v", b)
	}
}
