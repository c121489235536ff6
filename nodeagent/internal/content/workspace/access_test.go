package workspace_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

const stranger = 61234

// owned is the owner and mode of a file.
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

// isRoot reports whether the test runs as root, which changing owners needs.
func isRoot(t *testing.T) bool {
	if os.Geteuid() != 0 {
		t.Log("only root can change owners")
	}
	return os.Geteuid() == 0
}

func TestDirectoryBelongsToTheInstancesUser(t *testing.T) {
	if !isRoot(t) {
		return
	}
	b := newBench(t)
	plan := fleet.Plan{
		Layers:  []fleet.PlanLayer{b.layer("a", map[string]string{"server.jar": "x", "config/a.yml": "y"})},
		Confine: isolation.Confine{User: "61234"},
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	dir := b.builder.Dir(placement(), fleet.Plan{})
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

func TestReadOnlyTemplatesCannotBeChanged(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{
		Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"plugins/a.jar": "x", "world/level": "y"})},
		Static: true, ProtectedPaths: []string{"world"}, Confine: isolation.Confine{ReadOnlyTemplates: true},
	}
	dir := b.builder.Dir(placement(), fleet.Plan{Static: true})
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
	if !isRoot(t) {
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

func TestHardLinkedFileKeepsItsOwner(t *testing.T) {
	if !isRoot(t) {
		return
	}
	b := newBench(t)
	plan := fleet.Plan{Static: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"a": "x"})}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	dir := b.builder.Dir(placement(), fleet.Plan{Static: true})
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

// mode returns the mode of a file with its sticky bit.
func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Mode() & (fs.ModePerm | fs.ModeSticky)
}

func TestDirectoriesDenyOtherUsers(t *testing.T) {
	for name, plan := range map[string]fleet.Plan{
		"dynamic": {}, "static": {Static: true}, "in a container": {Runtime: fleet.RuntimeDocker}, "static in a container": {Runtime: fleet.RuntimeDocker, Static: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			plan.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{"password": "sesame"})}
			dir := b.builder.Dir(placement(), plan)
			for _, when := range []string{"new", "kept"} {
				if _, err := b.build(plan); err != nil {
					t.Fatal(err)
				}
				if got := mode(t, dir); got != 0o750 {
					t.Errorf("%s: %v", when, got)
				}
				if way := mode(t, filepath.Dir(dir)); plan.Runtime == fleet.RuntimeDocker && way != 0o700 {
					t.Errorf("%s: the parent: %v", when, way)
				}
				must(t, os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)) // as older agents did
			}
		})
	}
}

func TestUpgradeRestrictsAndMovesDirectories(t *testing.T) {
	b := newBench(t)
	contained := fleet.Plan{Runtime: fleet.RuntimeDocker}
	fixed := fleet.Plan{Runtime: fleet.RuntimeDocker, Static: true}
	dirs := map[string]fs.FileMode{
		"running/plain": 0o750, "static/other/other-1": 0o750, "running/sealed": 0o770 | fs.ModeSticky, "running/shared": 0o750,
	}
	for dir, mode := range dirs {
		must(t, os.MkdirAll(filepath.Join(b.data, dir), 0o755), os.Chmod(filepath.Join(b.data, dir), mode|0o005))
	}
	outside := filepath.Join(t.TempDir(), "outside")
	old, now := filepath.Join(b.data, "running", string(placement().Instance)), b.builder.Dir(placement(), contained)
	static := b.builder.Dir(placement(), fixed)
	must(t, os.Mkdir(outside, 0o755), os.Symlink(outside, filepath.Join(b.data, "running", "link")), os.MkdirAll(old, 0o755),
		os.WriteFile(filepath.Join(old, "world"), []byte("w"), 0o600), os.MkdirAll(static, 0o755))
	all := []workspace.Request{{Placement: placement(), Plan: contained}, {Placement: placement(), Plan: fixed}, {Placement: placement()}}
	for range 2 { // each start does it
		must(t, b.builder.Upgrade(all))
	}
	for dir, want := range dirs {
		if got := mode(t, filepath.Join(b.data, dir)); got != want {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
	for dir, want := range map[string]fs.FileMode{now: 0o750, filepath.Dir(now): 0o700, static: 0o750, filepath.Dir(static): 0o700, outside: 0o755} {
		if got := mode(t, dir); got != want {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(now, "world")); string(got) != "w" {
		t.Errorf("the moved directory has %q, %v", got, err)
	}
}

func TestPrivilegedFilesAreDisarmed(t *testing.T) {
	if !isRoot(t) {
		return
	}
	b := newBench(t)
	plan := fleet.Plan{Static: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"a": "x"})}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	dir := b.builder.Dir(placement(), plan)
	for _, name := range []string{"one", "two", "group"} { // as root in a container may
		bits := fs.ModeSetuid
		if name == "group" {
			bits = fs.ModeSetgid
		}
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755), os.Chmod(filepath.Join(dir, name), bits|0o755))
	}
	must(t, os.Link(filepath.Join(dir, "two"), filepath.Join(dir, "also two")), unix.Mknod(filepath.Join(dir, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
	plan.Confine.User = "61234"
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode()&(fs.ModeDevice|fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "one")); err != nil {
		t.Error(err)
	}
}

func TestWrittenFileIsNotTheCaches(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"a": "content"})}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(b.builder.Dir(placement(), plan), "a")); err != nil || fi.Sys().(*syscall.Stat_t).Nlink != 1 {
		t.Errorf("%+v, %v", fi, err)
	}
}
