package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

// server is a console that records what is typed.
type server struct {
	mu      sync.Mutex
	running bool
	lines   []string
	// refuses is a line that fails once.
	refuses string
	// prints is what it prints after each line.
	prints string
	output strings.Builder
}

func (s *server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

func (s *server) WriteLine(line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return errs.New(errs.Conflict, "no server runs")
	}
	if line == s.refuses {
		s.refuses = ""
		return errs.New(errs.Conflict, "its input is full")
	}
	s.lines = append(s.lines, line)
	s.output.WriteString(s.prints)
	return nil
}

func (s *server) Mark() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.output.Len()), nil
}

func (s *server) Await(ctx context.Context, offset int64, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case text == "endless":
		<-ctx.Done()
		return ctx.Err()
	case strings.Contains(s.output.String()[offset:], text):
		return nil
	}
	return context.DeadlineExceeded
}

// site is a keeper with one static directory.
type site struct {
	*Keeper
	t     *testing.T
	data  string
	dir   string
	place Place
	on    *server
	end   context.CancelFunc
	ended chan struct{}
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, data: t.TempDir(), on: &server{}}
	s.dir = filepath.Join(s.data, "static", "survival", "survival-1")
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	s.place = Place{
		Instance: "aaaaaa", Generation: 3, Group: "survival", Name: "survival-1", Console: s.on, Allowed: func() error { return nil },
	}
	s.open()
	t.Cleanup(s.stop)
	return s
}

func (s *site) config() Config {
	builder := workspace.New(s.data, nil)
	return Config{
		Dir: filepath.Join(s.data, "backups"), DataDir: s.data, Workspace: builder, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Aside: func(dir string, _ fleet.GroupName, name string) error {
			return builder.SetAside(dir, filepath.Join(s.data, "moved", fmt.Sprint(time.Now().UnixNano(), "-", name)))
		},
		Find: func(fleet.InstanceID) (Place, error) { return s.place, nil },
	}
}

func (s *site) open() {
	s.t.Helper()
	s.Keeper = Open(s.config())
	ctx, cancel := context.WithCancel(context.Background())
	s.end, s.ended = cancel, make(chan struct{})
	go func() {
		defer close(s.ended)
		s.Run(ctx)
	}()
}

func (s *site) stop() {
	s.end()
	<-s.ended
}

func (s *site) write(files map[string]string) {
	s.t.Helper()
	for name, text := range files {
		path := filepath.Join(s.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o640)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// await waits for the end of a backup or a restore.
func (s *site) await(b client.Backup, err error) client.Backup {
	s.t.Helper()
	if err == nil {
		b, err = s.Get(s.t.Context(), s.place, b.ID)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// backups lists the backups.
func (s *site) backups() []client.Backup {
	s.t.Helper()
	all, err := s.List(s.place)
	if err != nil {
		s.t.Fatal(err)
	}
	return all.Backups
}

func (s *site) create(n client.NewBackup) client.Backup {
	s.t.Helper()
	return s.await(s.Create(s.place, n))
}

// tree describes a directory: each path with its mode, time, content or target.
func (s *site) tree(dir string) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			content, _ = os.Readlink(path)
		}
		name, _ := filepath.Rel(dir, path)
		at := info.ModTime().UnixNano()
		if info.Mode()&fs.ModeSymlink != 0 || name == "." || name == claim.FileName { // not kept, or new
			at = 0
		}
		st := info.Sys().(*syscall.Stat_t)
		out[name] = fmt.Sprint(info.Mode(), " ", st.Uid, ":", st.Gid, " ", at, " ", content)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %q, want %q", name, got[name], w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is there", name)
		}
	}
}

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

func TestAServerIsPausedAndGoesOn(t *testing.T) {
	full := client.NewBackup{Before: []string{"save-off", "save-all flush"}, Until: "Saved the game", After: []string{"save-on"}}
	for name, c := range map[string]struct {
		running bool
		prints  string
		odd     bool
		lines   []string
		failure string
	}{
		"a running server":         {true, "[x] Saved the game\n", false, []string{"save-off", "save-all flush", "save-on"}, ""},
		"one that has ended":       {false, "", false, nil, ""},
		"one that does not write":  {true, "no\n", false, []string{"save-off", "save-all flush", "save-on"}, `did not print "Saved the game"`},
		"a name that is not UTF-8": {true, "Saved the game\n", true, []string{"save-off", "save-all flush", "save-on"}, `"a\xff" is not UTF-8: rename it`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write(map[string]string{"a": "1"})
			s.on.running, s.on.prints = c.running, c.prints
			s.on.output.WriteString("Saved the game\n") // earlier
			if c.odd {
				s.write(map[string]string{"a\xff": "1"})
			}
			b := s.create(full)
			if !slices.Equal(s.on.lines, c.lines) {
				t.Errorf("typed %q", s.on.lines)
			}
			if c.failure == "" && b.State != client.BackupComplete || c.failure != "" && (b.State != client.BackupFailed || !strings.Contains(b.Message, c.failure)) {
				t.Errorf("%+v", b)
			}
			if c.failure == "" {
				return
			}
			if left, _ := os.ReadDir(filepath.Join(s.data, "backups", "survival", "survival-1")); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
			if all := s.backups(); len(all) != 1 || all[0] != b {
				t.Errorf("%+v", all)
			}
			if _, err := s.Delete(s.place, b.ID, false); err != nil || len(s.backups()) != 0 {
				t.Errorf("the failure is not forgotten: %v", err)
			}
		})
	}
}

func TestTheNextAgentLetsAServerGoOn(t *testing.T) {
	s := newSite(t)
	s.stop()
	dir := filepath.Join(s.data, "backups", "survival", "survival-1")
	text, err := json.Marshal(job{Instance: "aaaaaa", Generation: 3, After: []string{"save-on"}})
	if err = errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "x.job"), text, 0o600), os.WriteFile(filepath.Join(dir, "x.partial"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	s.on.running = true
	s.open()
	s.stop() // waits for its jobs
	s.on.mu.Lock()
	lines := s.on.lines
	s.on.mu.Unlock()
	if !slices.Equal(lines, []string{"save-on"}) {
		t.Errorf("typed %q", lines)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestKeepRemovesTheOldestOfTheSameCaller(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	first := s.create(client.NewBackup{By: "admin"})
	var nightly []client.Backup
	for range 4 {
		nightly = append(nightly, s.create(client.NewBackup{By: "schedule nightly", Keep: 2}))
	}
	var ids []string
	for _, b := range s.backups() {
		ids = append(ids, b.ID)
	}
	if want := []string{nightly[3].ID, nightly[2].ID, first.ID}; !slices.Equal(ids, want) {
		t.Errorf("%q, want %q", ids, want)
	}
	await.That(t, "the files of 3 backups", func() string {
		left, _ := os.ReadDir(filepath.Dir(first.Path))
		return await.Unless(len(left) == 6, "%d files", len(left))
	})
	if _, err := s.Delete(s.place, first.ID, true); err != nil || len(s.backups()) != 3 {
		t.Errorf("a dry run: %v", err)
	}
	if _, err := s.Delete(s.place, first.ID, false); err != nil || len(s.backups()) != 2 {
		t.Errorf("%v", err)
	}
	for what, err := range map[string]error{
		"delete":  func() error { _, err := s.Delete(s.place, first.ID, false); return err }(),
		"restore": func() error { _, err := s.Restore(s.place, "../x", false); return err }(),
		"get":     func() error { _, err := s.Get(t.Context(), s.place, "x"); return err }(),
	} {
		if !errs.Is(err, errs.NotFound) || errs.FieldOf(err) != "backup" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n, bytes := s.Kept(); n != 2 || bytes == 0 {
		t.Errorf("%d backups, %d bytes", n, bytes)
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

func TestFilesThatChangeMeanwhileAreCounted(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"log": strings.Repeat("x", 1<<20)})
	var end sync.WaitGroup
	stop := make(chan struct{})
	end.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Truncate(filepath.Join(s.dir, "log"), int64(n%2)<<20)
			_ = os.WriteFile(filepath.Join(s.dir, fmt.Sprint("new-", n%10)), []byte("x"), 0o600)
			_ = os.Remove(filepath.Join(s.dir, fmt.Sprint("new-", (n+5)%10)))
			_ = os.Remove(filepath.Join(s.dir, "turning"))
			_ = os.Symlink("/etc/passwd", filepath.Join(s.dir, "turning"))
		}
	})
	changed := 0
	for range 20 {
		b := s.create(client.NewBackup{Keep: 1})
		if b.State != client.BackupComplete {
			t.Fatalf("%+v", b)
		}
		changed += b.Changed
	}
	close(stop)
	end.Wait()
	if changed == 0 {
		t.Error("no change was counted")
	}
	b := s.backups()[0]
	if b = s.await(s.Restore(s.place, b.ID, false)); b.Restored.IsZero() {
		t.Errorf("%+v", b)
	}
}

func TestALineThatIsRefusedIsSentAgain(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	s.on.running, s.on.refuses = true, "save-on"
	if b := s.create(client.NewBackup{Before: []string{"save-off"}, After: []string{"save-on"}}); b.State != client.BackupComplete {
		t.Errorf("%+v", b)
	}
	await.That(t, "the lines", func() string {
		s.on.mu.Lock()
		defer s.on.mu.Unlock()
		return await.Unless(slices.Equal(s.on.lines, []string{"save-off", "save-on"}), "%q", s.on.lines)
	})
	await.That(t, "the end of the job", func() string {
		left, err := filepath.Glob(filepath.Join(s.data, "backups", "survival", "survival-1", "*.job"))
		return await.Unless(err == nil && len(left) == 0, "%q %v", left, err)
	})
}

func TestABackupThatRunsIsCanceled(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	s.on.running = true
	b, err := s.Create(s.place, client.NewBackup{Before: []string{"save-off"}, Until: "endless"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(s.place, b.ID, true); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if _, err := s.Delete(s.place, b.ID, false); err != nil {
		t.Error(err)
	}
	if b = s.await(b, nil); b.State != client.BackupFailed || b.Message != "it was canceled" {
		t.Errorf("%+v", b)
	}
}

func TestTheNewBackupIsKeptWhenTheClockWasSetBack(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	s.create(client.NewBackup{Keep: 1})
	s.cfg.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	b := s.create(client.NewBackup{Keep: 1})
	if all := s.backups(); len(all) != 1 || all[0].ID != b.ID {
		t.Errorf("%+v, want %s", all, b.ID)
	}
}

func TestFilesThatAreLargerThanTheirDiskAreNamed(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	_, all, err := space(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(s.dir, "a"), all+1); err != nil {
		t.Fatal(err)
	}
	if b := s.create(client.NewBackup{}); b.State != client.BackupFailed || !strings.Contains(b.Message, "larger than the disk: a says") {
		t.Errorf("%+v", b)
	}
}

func TestAnUnusableDirectoryRefusesBackupsOnly(t *testing.T) {
	s := newSite(t)
	s.write(map[string]string{"a": "1"})
	s.stop()
	dir := filepath.Join(s.data, "backups")
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s.open()
	if _, err := s.Create(s.place, client.NewBackup{}); !errs.Is(err, errs.Unavailable) {
		t.Errorf("create: %v", err)
	}
	if _, err := s.List(s.place); !errs.Is(err, errs.Unavailable) {
		t.Errorf("list: %v", err)
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
