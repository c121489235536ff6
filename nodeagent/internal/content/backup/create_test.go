package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

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
