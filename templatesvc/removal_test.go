package templatesvc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// tree replaces the files of a repository.
func tree(t *testing.T, dir string, files ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != ".git" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	for _, f := range files {
		name := filepath.Join(dir, f)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(f), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// names returns the templates that have a head.
func (w *world) names() string {
	w.t.Helper()
	all, _, err := store.List(w.t.Context(), w.c, keys.TemplateHeads())
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, h := range all {
		names = append(names, h.TemplateRef.String())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// has fails the test unless exactly these templates exist.
func (w *world) has(want string) {
	w.t.Helper()
	if got := w.names(); got != want {
		w.t.Errorf("templates %s, want %s", got, want)
	}
}

// follow creates a source with a local repository. ask commits the current files and
// requests a look.
func (w *world) follow(s *content.TemplateSource) (dir string, ask func()) {
	w.t.Helper()
	dir, _, commit := newRepository(w.t)
	s.Name, s.Kind, s.URL = "repo", content.SourceGit, "file://"+dir
	return dir, func() { w.t.Helper(); commit(); s.Asked++; w.record(*s, content.SourceCredentials{}) }
}

func TestALookThatWouldRemoveMostIsHeldAsAWholeUntilItIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	var source content.TemplateSource
	dir, ask := w.follow(&source)
	tree(t, dir, "g/a/f", "g/b/f", "g/c/f", "g/d/f", "g/e/f", "g/f/f")
	ask()
	w.start("a")
	before := w.status("repo", content.SourceInSync)
	tree(t, dir, "g/a/f", "g/new/f")
	ask()
	st := w.status("repo", content.SourceHeld)
	if !strings.Contains(st.Message, "held: 5 of 6 templates would be removed (g/b, g/c, g/d, g/e, g/f)") || st.Held == "" || !strings.Contains(st.Message, st.Held) || st.Revision != before.Revision || len(st.Items) != 6 {
		t.Errorf("%+v", st)
	}
	w.has("g/a g/b g/c g/d g/e g/f") // and nothing new either
	source.Confirmed = "another revision"
	ask()
	st = w.status("repo", content.SourceHeld)
	source.Confirmed = st.Held
	source.Asked++
	w.record(source, content.SourceCredentials{})
	if st = w.status("repo", content.SourceInSync); st.Held != "" || len(st.Items) != 2 {
		t.Errorf("%+v", st)
	}
	w.has("g/a g/new")
}

func TestAHeldCommitRetractsNoTemplateThoughOnlyItsGroupsAreMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	source := content.TemplateSource{Declares: true}
	dir, ask := w.follow(&source)
	var groups []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		groups = append(groups, "groups/"+name+".json")
	}
	write := func(files ...string) {
		tree(t, dir, append(files, groups...)...)
		for _, g := range groups {
			if err := os.WriteFile(filepath.Join(dir, g), []byte(`{"command":"run"}`), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("templates/g/t/f", "templates/g/u/f")
	ask()
	w.start("a")
	w.status("repo", content.SourceInSync)
	groups = nil
	write("templates/g/u/f")
	ask()
	if st := w.status("repo", content.SourceHeld); !strings.Contains(st.Message, "held: 5 of 5 groups would be removed") {
		t.Errorf("%+v", st)
	}
	w.has("g/t g/u")
}

func TestTheCatalogThatARepositoryDeclaresIsRecordedAndItsRemovalHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	source := content.TemplateSource{Declares: true}
	dir, ask := w.follow(&source)
	write := func(versions ...string) {
		t.Helper()
		tree(t, dir, "templates/g/t/f")
		text := "platforms:\n  PAPER:\n    recommended: \"1\"\n    versions:\n"
		for _, v := range versions {
			text += fmt.Sprintf("      - {version: %q, downloadUrl: \"https://host/%s\"}\n", v, v)
		}
		if err := os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		ask()
	}
	declared := func() string {
		all, _, err := store.List(t.Context(), w.c, keys.DeclaredCatalogOf("repo"))
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, d := range all {
			text = append(text, fmt.Sprintf("%s %v", d.Name(), d.Removed))
		}
		return strings.Join(text, ", ")
	}
	write("1", "2", "3", "4", "5", "6")
	w.start("a")
	w.status("repo", content.SourceInSync)
	if got := declared(); got != "PAPER false, PAPER/1 false, PAPER/2 false, PAPER/3 false, PAPER/4 false, PAPER/5 false, PAPER/6 false" {
		t.Errorf("declared %s", got)
	}
	write("1", "2", "3", "4", "5")
	w.status("repo", content.SourceInSync)
	if got := declared(); !strings.HasSuffix(got, "PAPER/5 false, PAPER/6 true") {
		t.Errorf("declared %s", got)
	}
	tree(t, dir, "templates/g/t/f")
	ask()
	st := w.status("repo", content.SourceHeld)
	if !strings.Contains(st.Message, "held: 6 of 6 catalog entries would be removed (PAPER, PAPER/1, ") || strings.Count(declared(), "true") != 1 {
		t.Errorf("%s, declared %s", st.Message, declared())
	}
	source.Confirmed = st.Held
	ask()
	st = w.status("repo", content.SourceHeld) // another commit, which was not confirmed
	source.Confirmed = st.Held
	source.Asked++
	w.record(source, content.SourceCredentials{})
	w.status("repo", content.SourceInSync)
	if got := declared(); strings.Count(got, "true") != 7 {
		t.Errorf("declared %s", got)
	}
}

func TestALookThatFailsHalfWayRemovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	var source content.TemplateSource
	dir, ask := w.follow(&source)
	tree(t, dir, "g/a/f", "g/b/f")
	ask()
	w.start("a")
	w.status("repo", content.SourceInSync)
	tree(t, dir, "g/a/f", "g/new/f")
	if err := os.Symlink("../../../etc/passwd", filepath.Join(dir, "g/a/link")); err != nil {
		t.Fatal(err)
	}
	ask()
	st := w.status("repo", content.SourceFailed)
	if !strings.Contains(st.Message, "1 of 2 templates are not published, the first is g/a") {
		t.Errorf("%+v", st)
	}
	w.has("g/a g/b g/new")
	tree(t, dir, "g/a/f", "g/new/f")
	ask()
	w.status("repo", content.SourceInSync)
	w.has("g/a g/new")
}

func TestASourceThatIsReplacedOrMadeAnewRemovesOnlyWhatIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	source := content.TemplateSource{Path: "one"}
	dir, ask := w.follow(&source)
	tree(t, dir, "one/g/a/f", "one/g/b/f", "two/g/b/f", "two/g/c/f")
	ask()
	w.start("a")
	w.status("repo", content.SourceInSync)
	source.Path = "two"
	ask()
	st := w.status("repo", content.SourceHeld)
	if !strings.Contains(st.Message, "kept: 1 of 2 templates are not in the source") || st.Held == "" {
		t.Errorf("%+v", st)
	}
	w.has("g/a g/b g/c")

	// Templates from the current place are removed as usual; kept ones stay kept.
	tree(t, dir, "two/g/b/f", "two/g/new/f")
	ask()
	st = w.status("repo", content.SourceHeld)
	w.has("g/a g/b g/new")
	source.Confirmed = st.Held
	source.Asked++
	w.record(source, content.SourceCredentials{})
	w.status("repo", content.SourceInSync)
	w.has("g/b g/new")

	// Another source of the same name does not own what the first one published.
	var writes []store.Write
	if now, err := store.Get(t.Context(), w.c, keys.TemplateSource("repo")); err == nil {
		writes = append(writes, store.Remove(keys.TemplateSource("repo"), now.ModRev))
	}
	if now, err := store.Get(t.Context(), w.c, keys.TemplateSourceStatus("repo")); err == nil {
		writes = append(writes, store.Remove(keys.TemplateSourceStatus("repo"), now.ModRev))
	}
	if _, err := w.c.Commit(t.Context(), store.Txn{Writes: writes}); err != nil {
		t.Fatal(err)
	}
	tree(t, dir, "two/g/other/f")
	source.Confirmed = ""
	ask()
	w.status("repo", content.SourceHeld)
	w.has("g/b g/new g/other")
}

func TestAConfirmationCountsForWhatWasShownAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	source := content.TemplateSource{Path: "one"}
	dir, ask := w.follow(&source)
	look := func() { source.Asked++; w.record(source, content.SourceCredentials{}) } // at the same commit
	tree(t, dir, "one/g/a/f", "one/g/b/f", "two/g/b/f", "two/g/c/f", "three/g/c/f", "one/g/x/f")
	ask()
	w.start("a")
	w.status("repo", content.SourceInSync)
	source.Path = "two"
	look()
	source.Confirmed = w.status("repo", content.SourceHeld).Held
	look()
	w.status("repo", content.SourceInSync)
	w.has("g/b g/c")

	// The same commit at another place: removals there were not confirmed.
	source.Path = "three"
	look()
	st := w.status("repo", content.SourceHeld)
	if !strings.Contains(st.Message, "kept: 1 of 2 templates") || st.Held == source.Confirmed {
		t.Errorf("%+v", st)
	}
	w.has("g/b g/c")

	// Later removals need another confirmation.
	source.Confirmed = st.Held
	look()
	w.status("repo", content.SourceInSync)
	w.has("g/c")
	for _, c := range []struct {
		rule   string
		shrink func()
		state  content.SourceState
		left   string
	}{
		{"what is confirmed goes", func() {
			tree(t, dir, "three/g/c/f")
			ask()
			source.Confirmed = w.status("repo", content.SourceHeld).Held
			look()
		}, content.SourceInSync, "g/c"},
		{"the same another time waits, though the repository is back at that commit", func() {
			if out, err := exec.Command("git", "-C", dir, "reset", "--quiet", "--hard", "HEAD~1").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			look()
		}, content.SourceHeld, "g/c g/d g/e g/f g/g g/h"},
	} {
		tree(t, dir, "three/g/c/f", "three/g/d/f", "three/g/e/f", "three/g/f/f", "three/g/g/f", "three/g/h/f")
		ask()
		w.status("repo", content.SourceInSync)
		c.shrink()
		w.status("repo", c.state)
		if got := w.names(); got != c.left {
			t.Errorf("%s: templates %s, want %s", c.rule, got, c.left)
		}
	}
}
