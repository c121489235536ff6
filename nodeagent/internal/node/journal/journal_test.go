package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

const node = fleet.NodeID("node-1")

func open(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, "boot", func() string { return "uuid" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

func entry(id fleet.InstanceID) journal.Entry {
	return journal.Entry{
		Version: 1,
		Machine: machine.State{Phase: machine.Online, Run: 3, Alive: true, Placement: fleet.Placement{Instance: id, Node: node, Generation: 2}},
		Token:   "secret", ProcessRun: 3, Process: runtime.Identity{BootID: "boot", Shell: runtime.ProcessID{PID: 5, Start: 6}},
	}
}

func TestWriteAndLoad(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for _, id := range []fleet.InstanceID{"bbbbbb", "aaaaaa"} {
		if err := j.Write(entry(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Remove("bbbbbb"); err != nil {
		t.Fatal(err)
	}
	got, damaged, err := j.Load(node)
	if err != nil || len(damaged) > 0 {
		t.Fatal(err, damaged)
	}
	if diff := cmp.Diff([]journal.Entry{entry("aaaaaa")}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	fi, err := os.Stat(filepath.Join(dir, "journal", "aaaaaa.json"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("an entry holds a secret, its mode is %v, %v", fi.Mode(), err)
	}
}

func TestDamagedFileIsReportedAndHarmsNoOther(t *testing.T) {
	cases := map[string]struct{ content, says string }{
		"empty":               {"", "is damaged"},
		"cut short":           {`{"machine":{"pha`, "is damaged"},
		"no JSON":             {"\x00\x00", "is damaged"},
		"of another instance": {`{"machine":{"placement":{"instance":"zzzzzz","node":"node-1"}}}`, "another instance"},
		"of another node":     {`{"version":1,"machine":{"placement":{"instance":"cccccc","node":"node-2"}}}`, `node "node-2"`},
		"of a newer version":  {`{"version":2,"machine":"told differently"}`, "newer version"},
		"unknown version":     {`{"version":"two"}`, "is damaged"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			if err := j.Write(entry("aaaaaa")); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "journal", "cccccc.json")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, damaged, err := j.Load(node)
			if err != nil || len(got) != 1 || len(damaged) != 1 {
				t.Fatalf("%d entries, damaged %v, %v", len(got), damaged, err)
			}
			if text := damaged[0].Error(); !strings.Contains(text, path) || !strings.Contains(text, c.says) {
				t.Errorf("named as %q", text)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != c.content {
				t.Errorf("the file was touched: %q, %v", b, err)
			}
		})
	}
}

func TestFirstFormatIsRead(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	old := `{"machine":{"phase":"online","run":3,"placement":{"instance":"aaaaaa","node":"node-1"}},"processRun":3}`
	if err := os.WriteFile(filepath.Join(dir, "journal", "aaaaaa.json"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	got, damaged, err := j.Load(node)
	if err != nil || len(damaged) > 0 || len(got) != 1 || got[0].Machine.Run != 3 {
		t.Errorf("%+v, %v, %v", got, damaged, err)
	}
}

func TestInterruptedWriteIsRemovedOtherFilesStay(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for _, name := range []string{"aaaaaa.json.tmp", "README"} {
		if err := os.WriteFile(filepath.Join(dir, "journal", name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, damaged, err := j.Load(node); len(got)+len(damaged) > 0 || err != nil {
		t.Errorf("%v, %v, %v", got, damaged, err)
	}
	files, err := os.ReadDir(filepath.Join(dir, "journal"))
	if err != nil || len(files) != 2 || files[0].Name() != "README" || files[1].Name() != "reserve" {
		t.Errorf("left: %v, %v", files, err)
	}
}

func TestDeletedJournalIsRecreated(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if err := os.RemoveAll(filepath.Join(dir, "journal")); err != nil {
		t.Fatal(err)
	}
	if err := j.Write(entry("aaaaaa")); err != nil {
		t.Fatal(err)
	}
	if got, _, err := j.Load(node); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFullDiskIsExhaustedAfterReserve(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	reserved := func() bool {
		_, err := os.Stat(filepath.Join(dir, "journal", "reserve"))
		return err == nil
	}
	for _, c := range []struct {
		name     string
		id       fleet.InstanceID
		full     bool
		want     errs.Kind
		reserved bool
	}{
		{name: "a reserve is kept", id: "aaaaaa", reserved: true},
		{name: "the reserve is spent", id: "bbbbbb", full: true},
		{name: "nothing is left", id: "cccccc", full: true, want: errs.Exhausted},
		{name: "a reserve is kept again", id: "dddddd", reserved: true},
	} {
		if c.full { // only the next write fails with a full disk
			if err := os.Symlink("/dev/full", filepath.Join(dir, "journal", string(c.id)+".json.tmp")); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Write(entry(c.id)); errs.KindOf(err) != c.want || reserved() != c.reserved {
			t.Errorf("%s: %v, reserved %v", c.name, err, reserved())
		}
	}
}

// at is an entry that is identified by its run.
func at(run int) journal.Entry {
	e := entry("aaaaaa")
	e.Machine.Run = run
	return e
}

func TestLastCompleteEntryCounts(t *testing.T) {
	for name, tail := range map[string]string{"as written": "", "a write that was cut short": `{"version":1,"machine":{"phase":"onl`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			for run := range 3 {
				if err := j.Write(at(run)); err != nil {
					t.Fatal(err)
				}
			}
			f, err := os.OpenFile(filepath.Join(dir, "journal", "aaaaaa.json"), os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteString(tail)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			j.Close()
			next := open(t, dir)
			for _, run := range []int{2, 7} { // also after another agent's write
				got, damaged, err := next.Load(node)
				if err != nil || len(damaged) > 0 || len(got) != 1 || got[0].Machine.Run != run {
					t.Fatalf("%+v, %v, %v; want run %d", got, damaged, err, run)
				}
				if err := next.Write(at(7)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestEntryFileIsBounded(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for run := range 500 {
		if err := j.Write(at(run)); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(filepath.Join(dir, "journal", "aaaaaa.json"))
		if err != nil || fi.Size() > 32<<10 {
			t.Fatalf("%v, %v", fi.Size(), err)
		}
	}
	if got, _, err := j.Load(node); err != nil || len(got) != 1 || got[0].Machine.Run != 499 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFailedAppendReplacesFile(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	path := filepath.Join(dir, "journal", "aaaaaa.json")
	spoil := map[string]func() error{
		"a full disk":  func() error { return errors.Join(os.Remove(path), os.Symlink("/dev/full", path)) },
		"deleted file": func() error { return os.Remove(path) },
	}
	for name, spoil := range spoil {
		if err := errors.Join(j.Write(at(1)), spoil(), j.Write(at(2))); err != nil {
			t.Fatal(name, err)
		}
		if got, _, err := j.Load(node); err != nil || len(got) != 1 || got[0].Machine.Run != 2 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestDirectoryBelongsToOneAgent(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if _, err := journal.Open(dir, "boot", nil); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), dir) {
		t.Errorf("a second agent: %v", err)
	}
	j.Close()
	again, err := journal.Open(dir, "boot", func() string { return "another" })
	if err != nil || again.UUID() != "uuid" {
		t.Fatalf("%v, %q", err, again.UUID())
	}
	again.Close()
}

func TestUnusableDirectoryIsReportedWithAdvice(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(filepath.Join(blocked, "data"), "boot", nil); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "data" {
		t.Errorf("got %v", err)
	}
}

func TestIdentityIsNeverReplaced(t *testing.T) {
	spoil := map[string]func(path string) error{
		"unreadable": func(path string) error { return os.Mkdir(path, 0o700) },
		"empty":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"damaged":    func(path string) error { return os.WriteFile(path, []byte("../../etc\x00"), 0o600) },
		"missing":    func(string) error { return nil },
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			if err := j.Write(entry("aaaaaa")); err != nil {
				t.Fatal(err)
			}
			j.Close()
			path := filepath.Join(dir, "uuid")
			if err := errors.Join(os.Remove(path), spoil(path)); err != nil {
				t.Fatal(err)
			}
			_, err := journal.Open(dir, "boot", func() string { return "another" })
			if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), path) || !strings.Contains(errs.MessageOf(err), "dataUuid") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestStaleLockFileIsIgnored(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("12345\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestRebootIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		boot     string
		rebooted bool
	}{{"first", false}, {"first", false}, {"second", true}, {"second", false}} {
		j, err := journal.Open(dir, c.boot, func() string { return "uuid" })
		if err != nil {
			t.Fatal(err)
		}
		if j.Rebooted() != c.rebooted || j.HolderChanged() != c.rebooted {
			t.Errorf("under boot %s rebooted is %v, moved %v", c.boot, j.Rebooted(), j.HolderChanged())
		}
		j.Close()
	}
}

func TestCopyHasAnotherHolder(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	first := open(t, dir)
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	holder := first.Holder()
	if got := open(t, other); got.Holder() == holder || got.UUID() != first.UUID() || !got.HolderChanged() || got.Rebooted() {
		t.Errorf("holder %s of both", holder)
	}
	first.Close()
	if again := open(t, dir); again.Holder() != holder || again.HolderChanged() {
		t.Errorf("holder %s became %s", holder, again.Holder())
	}
}
