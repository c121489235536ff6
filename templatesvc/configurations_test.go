package templatesvc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc"
)

// declaring is a source of kind configurations.
type declaring struct {
	*world
	source fleet.TemplateSource
}

func newDeclaring(t *testing.T) *declaring {
	return &declaring{newWorld(t), fleet.TemplateSource{Name: "here", Kind: fleet.SourceConfigurations, Declares: true, IntervalSeconds: 3600}}
}

// over starts a replica on a directory.
func (d *declaring) over(dir, replica string, settling time.Duration) (stop func()) {
	d.t.Helper()
	_, stop = d.startWith(templatesvc.Config{Replica: replica, BlobDir: d.blobs, ConfigurationsDir: dir, Settling: settling})
	return stop
}

// look has the source looked at, once more.
func (d *declaring) look(want fleet.SourceState) fleet.SourceStatus {
	d.t.Helper()
	d.source.Asked++
	d.record(d.source, fleet.SourceCredentials{})
	return d.status("here", want)
}

// declared are the groups that are, each with what tells whether it was ordered to go
// meanwhile, and those that are to go.
func (d *declaring) declared() (are map[string]int64, gone string) {
	d.t.Helper()
	all, _, err := store.List(d.t.Context(), d.c, store.DeclaredGroupsOf("here"))
	if err != nil {
		d.t.Fatal(err)
	}
	are = map[string]int64{}
	for _, g := range all {
		if g.Removed {
			gone += string(g.Group)
			continue
		}
		are[string(g.Group)] = g.ModRev
	}
	return are, gone
}

// files is a directory of configurations of some names.
func files(t *testing.T, names string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, string(name)+".json"), []byte(`{"command":"run"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAFileThatIsNotThereAtALookRemovesNoGroup(t *testing.T) {
	d := newDeclaring(t)
	dir := files(t, "abc")
	d.over(dir, "one", 0)
	d.look(fleet.SourceInSync)
	before, _ := d.declared()
	file, aside := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.json.new")
	if err := os.Rename(file, aside); err != nil {
		t.Fatal(err)
	}
	d.look(fleet.SourceHeld)
	st := d.look(fleet.SourceHeld)
	if !strings.Contains(st.Message, "waiting: 1 of 3 groups are not there now (a)") || !strings.Contains(st.Message, st.Held) {
		t.Errorf("told %q", st.Message)
	}
	if err := os.Rename(aside, file); err != nil {
		t.Fatal(err)
	}
	d.look(fleet.SourceInSync)
	if after, gone := d.declared(); fmt.Sprint(after) != fmt.Sprint(before) || gone != "" {
		t.Errorf("declared %v, then %v and to go %q", before, after, gone)
	}
	// What is confirmed goes at once.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	d.source.Confirmed = d.look(fleet.SourceHeld).Held
	d.look(fleet.SourceInSync)
	if after, gone := d.declared(); len(after) != 2 || gone != "a" {
		t.Errorf("declared %v, and to go %q", after, gone)
	}
}

func TestAUserWhoAsksForALookSeesRemovalsAtOnce(t *testing.T) {
	d := newDeclaring(t)
	d.source.Attended = true
	dir := files(t, "abcdefg")
	stop := d.over(dir, "one", time.Hour)
	d.look(fleet.SourceInSync)
	remove := func(names string) {
		t.Helper()
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, string(name)+".json")); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone := func(want string) {
		t.Helper()
		if st := d.look(fleet.SourceInSync); st.Message != "" {
			t.Errorf("told %q", st.Message)
		}
		if _, gone := d.declared(); gone != want {
			t.Errorf("to go %q, want %q", gone, want)
		}
	}
	remove("a")
	gone("a")
	remove("bcdef") // most of many
	gone("abcdef")
	remove("g") // the last one
	gone("abcdefg")
	stop()

	// What nobody asked for removes nothing, and neither does another directory.
	d.source.Attended = false
	if err := os.WriteFile(filepath.Join(dir, "h.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop = d.over(dir, "two", time.Hour)
	d.look(fleet.SourceInSync)
	remove("h")
	d.look(fleet.SourceFailed)
	stop()
	d.over(t.TempDir(), "three", time.Hour)
	d.source.Attended = true
	if st := d.look(fleet.SourceFailed); !strings.Contains(st.Message, "what it declared before stays") {
		t.Errorf("told %q", st.Message)
	}
	if are, _ := d.declared(); len(are) != 1 {
		t.Errorf("declared %v", are)
	}
}

func TestAFileThatStaysAwayRemovesItsGroupThoughNobodyAsks(t *testing.T) {
	d := newDeclaring(t)
	dir := files(t, "abc")
	stop := d.over(dir, "one", time.Hour)
	d.look(fleet.SourceInSync)
	if err := os.Remove(filepath.Join(dir, "a.json")); err != nil {
		t.Fatal(err)
	}
	d.look(fleet.SourceHeld)
	stop()
	d.over(dir, "two", 50*time.Millisecond) // what waits waits there too, from its first look
	await.That(t, "a goes", func() string {
		are, gone := d.declared()
		return await.Unless(len(are) == 2 && gone == "a", "declared %v, and to go %q", are, gone)
	})
	if st := d.status("here", fleet.SourceInSync); st.Message != "" {
		t.Errorf("%+v", st)
	}
}

func TestAnotherDirectoryOfConfigurationsRemovesNothing(t *testing.T) {
	for rule, other := range map[string]func(t *testing.T, dir string) string{
		"a copy that is behind, of another replica": func(t *testing.T, _ string) string { return files(t, "d") },
		"one that is put into its place": func(t *testing.T, dir string) string {
			err := os.Rename(dir, dir+".old")
			if err == nil {
				err = os.Rename(files(t, "d"), dir)
			}
			if err != nil {
				t.Fatal(err)
			}
			return dir
		},
	} {
		t.Run(rule, func(t *testing.T) {
			d := newDeclaring(t)
			dir := files(t, "abcd")
			stop := d.over(dir, "one", time.Millisecond)
			d.look(fleet.SourceInSync)
			stop()
			d.over(other(t, dir), "two", time.Millisecond)
			d.look(fleet.SourceHeld)
			st := d.look(fleet.SourceHeld)
			if are, gone := d.declared(); len(are) != 4 || gone != "" || !strings.Contains(st.Message, "kept: 3 of 4 groups") {
				t.Errorf("declared %v, and to go %q: %s", are, gone, st.Message)
			}
			d.source.Confirmed = st.Held
			d.look(fleet.SourceInSync)
			if are, gone := d.declared(); len(are) != 1 || gone != "abc" {
				t.Errorf("declared %v, and to go %q", are, gone)
			}
		})
	}
}

func TestALookThatFailedLeavesTheUsersRequestForTheNextOne(t *testing.T) {
	d := newDeclaring(t)
	dir := files(t, "abc")
	stop := d.over(dir, "one", time.Hour)
	d.look(fleet.SourceInSync)
	aside := dir + ".aside"
	if err := os.Rename(dir, aside); err != nil {
		t.Fatal(err)
	}
	d.source.Attended = true
	d.look(fleet.SourceFailed)
	stop()
	if err := os.Remove(filepath.Join(aside, "a.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, dir); err != nil {
		t.Fatal(err)
	}
	settled := func(want fleet.SourceState) {
		t.Helper()
		stop := d.over(dir, "one", time.Hour) // a start looks without being asked
		await.That(t, "the look", func() string {
			st, err := store.Get(t.Context(), d.c, store.TemplateSourceStatusKey("here"))
			return await.Unless(err == nil && st.State == want, "%+v, %v", st, err)
		})
		stop()
	}
	settled(fleet.SourceInSync)
	if _, gone := d.declared(); gone != "a" {
		t.Errorf("to go %q", gone)
	}
	// That was what the user asked for. A later removal waits, also after a failure.
	if err := os.Rename(dir, aside); err != nil {
		t.Fatal(err)
	}
	settled(fleet.SourceFailed)
	if err := os.Remove(filepath.Join(aside, "b.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, dir); err != nil {
		t.Fatal(err)
	}
	settled(fleet.SourceHeld)
	if _, gone := d.declared(); gone != "a" {
		t.Errorf("to go %q", gone)
	}
}
