package templatesvc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc"
)

// declaring is a test with a source of kind configurations.
type declaring struct {
	*world
	source content.TemplateSource
}

func newDeclaring(t *testing.T) *declaring {
	return &declaring{newWorld(t), content.TemplateSource{Name: "here", Kind: content.SourceConfigurations, Declares: true, IntervalSeconds: 3600}}
}

// over starts a replica with a directory of configurations.
func (d *declaring) over(dir, replica string, settling time.Duration) (stop func()) {
	d.t.Helper()
	_, stop = d.startWith(templatesvc.Config{Replica: replica, BlobDir: d.blobs, ConfigurationsDir: dir, Settling: settling})
	return stop
}

// look requests another look at the source.
func (d *declaring) look(want content.SourceState) content.SourceStatus {
	d.t.Helper()
	d.source.Asked++
	d.record(d.source, content.SourceCredentials{})
	return d.status("here", want)
}

// declared returns the declared groups, each with a revision that changes when its removal
// is requested, and the groups to be removed.
func (d *declaring) declared() (are map[string]int64, gone string) {
	d.t.Helper()
	all, _, err := store.List(d.t.Context(), d.c, keys.DeclaredGroupsOf("here"))
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

// files creates a directory of configurations with these names.
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
	t.Parallel()
	d := newDeclaring(t)
	dir := files(t, "abc")
	d.over(dir, "one", 0)
	d.look(content.SourceInSync)
	before, _ := d.declared()
	file, aside := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.json.new")
	if err := os.Rename(file, aside); err != nil {
		t.Fatal(err)
	}
	d.look(content.SourceHeld)
	st := d.look(content.SourceHeld)
	if !strings.Contains(st.Message, "waiting: 1 of 3 groups are missing (a)") || !strings.Contains(st.Message, st.Held) {
		t.Errorf("told %q", st.Message)
	}
	if err := os.Rename(aside, file); err != nil {
		t.Fatal(err)
	}
	d.look(content.SourceInSync)
	if after, gone := d.declared(); fmt.Sprint(after) != fmt.Sprint(before) || gone != "" {
		t.Errorf("declared %v, then %v and to go %q", before, after, gone)
	}
	// A confirmed removal happens at once.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	d.source.Confirmed = d.look(content.SourceHeld).Held
	d.look(content.SourceInSync)
	if after, gone := d.declared(); len(after) != 2 || gone != "a" {
		t.Errorf("declared %v, and to go %q", after, gone)
	}
}

func TestAUserWhoAsksForALookSeesRemovalsAtOnce(t *testing.T) {
	t.Parallel()
	d := newDeclaring(t)
	d.source.Attended = true
	dir := files(t, "abcdefg")
	stop := d.over(dir, "one", time.Hour)
	d.look(content.SourceInSync)
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
		if st := d.look(content.SourceInSync); st.Message != "" {
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

	// A look that no user requested removes nothing, and neither does another directory.
	d.source.Attended = false
	if err := os.WriteFile(filepath.Join(dir, "h.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop = d.over(dir, "two", time.Hour)
	d.look(content.SourceInSync)
	remove("h")
	d.look(content.SourceFailed)
	stop()
	d.over(t.TempDir(), "three", time.Hour)
	d.source.Attended = true
	if st := d.look(content.SourceFailed); !strings.Contains(st.Message, "its earlier declarations stay") {
		t.Errorf("told %q", st.Message)
	}
	if are, _ := d.declared(); len(are) != 1 {
		t.Errorf("declared %v", are)
	}
}

func TestAFileThatStaysAwayRemovesItsGroupThoughNobodyAsks(t *testing.T) {
	t.Parallel()
	d := newDeclaring(t)
	dir := files(t, "abc")
	stop := d.over(dir, "one", time.Hour)
	d.look(content.SourceInSync)
	if err := os.Remove(filepath.Join(dir, "a.json")); err != nil {
		t.Fatal(err)
	}
	d.look(content.SourceHeld)
	stop()
	d.over(dir, "two", 50*time.Millisecond) // removals also wait in the second replica, from its first look
	await.That(t, "a goes", func() string {
		are, gone := d.declared()
		return await.Unless(len(are) == 2 && gone == "a", "declared %v, and to go %q", are, gone)
	})
	if st := d.status("here", content.SourceInSync); st.Message != "" {
		t.Errorf("%+v", st)
	}
}

func TestAnotherDirectoryOfConfigurationsRemovesNothing(t *testing.T) {
	t.Parallel()
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
			d.look(content.SourceInSync)
			stop()
			d.over(other(t, dir), "two", time.Millisecond)
			d.look(content.SourceHeld)
			st := d.look(content.SourceHeld)
			if are, gone := d.declared(); len(are) != 4 || gone != "" || !strings.Contains(st.Message, "kept: 3 of 4 groups") {
				t.Errorf("declared %v, and to go %q: %s", are, gone, st.Message)
			}
			d.source.Confirmed = st.Held
			d.look(content.SourceInSync)
			if are, gone := d.declared(); len(are) != 1 || gone != "abc" {
				t.Errorf("declared %v, and to go %q", are, gone)
			}
		})
	}
}

func TestALookThatFailedLeavesTheUsersRequestForTheNextOne(t *testing.T) {
	t.Parallel()
	d := newDeclaring(t)
	dir := files(t, "abc")
	stop := d.over(dir, "one", time.Hour)
	d.look(content.SourceInSync)
	aside := dir + ".aside"
	if err := os.Rename(dir, aside); err != nil {
		t.Fatal(err)
	}
	d.source.Attended = true
	d.look(content.SourceFailed)
	stop()
	if err := os.Remove(filepath.Join(aside, "a.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, dir); err != nil {
		t.Fatal(err)
	}
	settled := func(want content.SourceState) {
		t.Helper()
		stop := d.over(dir, "one", time.Hour) // a start looks without a request
		await.That(t, "the look", func() string {
			st, err := store.Get(t.Context(), d.c, keys.TemplateSourceStatus("here"))
			return await.Unless(err == nil && st.State == want, "%+v, %v", st, err)
		})
		stop()
	}
	settled(content.SourceInSync)
	if _, gone := d.declared(); gone != "a" {
		t.Errorf("to go %q", gone)
	}
	// The user requested that one. A later removal waits, also after a failure.
	if err := os.Rename(dir, aside); err != nil {
		t.Fatal(err)
	}
	settled(content.SourceFailed)
	if err := os.Remove(filepath.Join(aside, "b.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, dir); err != nil {
		t.Fatal(err)
	}
	settled(content.SourceHeld)
	if _, gone := d.declared(); gone != "a" {
		t.Errorf("to go %q", gone)
	}
}
