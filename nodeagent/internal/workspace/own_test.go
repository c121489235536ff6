package workspace_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
)

const stranger = 61234

// owned is who owns what in a directory, and how.
type owned struct {
	UID, GID int
	Mode     fs.FileMode
}

func (b *bench) owners(dir string) map[string]owned {
	b.t.Helper()
	got := map[string]owned{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		st := info.Sys().(*syscall.Stat_t)
		got[rel] = owned{int(st.Uid), int(st.Gid), info.Mode() & (fs.ModePerm | fs.ModeSticky)}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// onlyRoot reports whether this test can give anything away.
func onlyRoot(t *testing.T) bool {
	if os.Geteuid() != 0 {
		t.Log("only root gives directories to others")
	}
	return os.Geteuid() == 0
}

func TestADirectoryBelongsToItsInstancesUserAndIsClosedToOthers(t *testing.T) {
	if !onlyRoot(t) {
		return
	}
	b := newBench(t)
	plan := fleet.Plan{
		Layers:  []fleet.PlanLayer{b.layer("a", map[string]string{"server.jar": "x", "config/a.yml": "y"})},
		Confine: fleet.Confine{User: "61234"},
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	dir := b.builder.Dir(placement(), false)
	want := map[string]owned{
		".": {stranger, stranger, 0o750}, "config": {stranger, stranger, 0o755},
		"server.jar": {stranger, stranger, 0o644}, "config/a.yml": {stranger, stranger, 0o644},
	}
	if diff := cmp.Diff(want, b.owners(dir)); diff != "" {
		t.Error(diff)
	}
	for _, way := range []string{b.data, filepath.Dir(dir)} {
		if fi, err := os.Stat(way); err != nil || fi.Mode().Perm() != 0o711 {
			t.Errorf("%s: %v, %v", way, fi.Mode(), err)
		}
	}
}

func TestReadOnlyTemplatesCanNeitherBeWrittenNorReplaced(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{
		Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"plugins/a.jar": "x", "world/level": "y"})},
		Static: true, ProtectedPaths: []string{"world"}, Confine: fleet.Confine{ReadOnlyTemplates: true},
	}
	dir := b.builder.Dir(placement(), true)
	modes := func() {
		t.Helper()
		got := b.owners(dir)
		if got["plugins/a.jar"].Mode&0o222 != 0 || got["world/level"].Mode != 0o644 {
			t.Errorf("%+v", got)
		}
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	modes()
	if !onlyRoot(t) {
		return
	}
	plan.Confine.User = "61234"
	if err := os.WriteFile(filepath.Join(dir, "saved"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	modes()
	want := map[string]owned{
		".": {0, stranger, 0o770 | fs.ModeSticky}, "plugins": {0, stranger, 0o775 | fs.ModeSticky}, "world": {0, stranger, 0o775 | fs.ModeSticky},
		"plugins/a.jar": {0, stranger, 0o444}, "world/level": {stranger, stranger, 0o644}, "saved": {stranger, stranger, 0o600},
	}
	if diff := cmp.Diff(want, b.owners(dir)); diff != "" {
		t.Error(diff)
	}
}

func TestAFileWithAnotherNameIsNotGivenAway(t *testing.T) {
	if !onlyRoot(t) {
		return
	}
	b := newBench(t)
	plan := fleet.Plan{Static: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"a": "x"})}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	dir := b.builder.Dir(placement(), true)
	secret := filepath.Join(b.data, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(secret, filepath.Join(dir, "innocent")); err != nil {
		t.Fatal(err)
	}
	plan.Confine.User = "61234"
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if got := b.owners(dir)["innocent"]; got.UID != 0 {
		t.Errorf("%+v", got)
	}
}
