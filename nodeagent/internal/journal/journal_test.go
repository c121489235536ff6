package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

func open(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, func() string { return "uuid" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

func entry(id fleet.InstanceID) journal.Entry {
	return journal.Entry{
		Machine: machine.State{Phase: machine.Online, Run: 3, Alive: true, Placement: fleet.Placement{Instance: id, Generation: 2}},
		Token:   "secret", ProcessRun: 3, Process: runtime.Identity{BootID: "boot", Shell: runtime.ProcessID{PID: 5, Start: 6}},
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
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
	got, damaged, err := j.Load()
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

func TestADamagedFileIsNamedAndHarmsNoOther(t *testing.T) {
	cases := map[string]string{
		"nothing in it": "", "cut short": `{"machine":{"pha`, "no JSON": "\x00\x00", "of another instance": `{"machine":{"placement":{"instance":"zzzzzz"}}}`,
	}
	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			if err := j.Write(entry("aaaaaa")); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "journal", "cccccc.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, damaged, err := j.Load()
			if err != nil || len(got) != 1 || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), "cccccc") {
				t.Errorf("%d entries, damaged %v, %v", len(got), damaged, err)
			}
		})
	}
}

func TestADirectoryBelongsToOneAgent(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if _, err := journal.Open(dir, nil); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), dir) {
		t.Errorf("a second agent: %v", err)
	}
	j.Close()
	again, err := journal.Open(dir, func() string { return "another" })
	if err != nil || again.UUID() != "uuid" {
		t.Fatalf("%v, %q", err, again.UUID())
	}
	again.Close()
}

func TestADirectoryThatCannotBeMadeIsTheOperatorsToMend(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(filepath.Join(blocked, "data"), nil); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "data" {
		t.Errorf("got %v", err)
	}
}
