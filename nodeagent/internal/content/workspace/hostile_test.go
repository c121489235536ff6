package workspace_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

// kept returns a bench with an existing static directory.
func kept(t *testing.T, plan fleet.Plan) (b *bench, dir string) {
	t.Helper()
	b = newBench(t)
	plan.Static = true
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	return b, b.builder.Dir(placement(), fleet.Plan{Static: true})
}

func must(t *testing.T, all ...error) {
	t.Helper()
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}

func TestSymlinkInPlaceOfAFileIsNotFollowed(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for name, target := range map[string]string{"out": outside, "to nothing": "gone", "to itself": "x", "within": "own"} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(outside, []byte("theirs %PORT%"), 0o600))
			b, dir := kept(t, fleet.Plan{})
			must(t, os.WriteFile(filepath.Join(dir, "own"), []byte("own %PORT%"), 0o600), os.Symlink(target, filepath.Join(dir, "x")), os.Symlink(target, filepath.Join(dir, "named")))
			plan := fleet.Plan{
				Static: true, FileModifications: []string{"x", "named"}, Patches: []configfile.ConfigPatch{configPatch(configfile.PatchSet, "x.yml", "a", "1")},
				Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "template %PORT%"})},
			}
			for _, override := range []bool{false, true} {
				plan.Override = override
				notes, err := b.build(plan)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(strings.Join(notes, "\n"), "named was not changed: not a file") {
					t.Errorf("told %q", notes)
				}
				want := "-> " + target
				if override {
					want = "template 25565"
				}
				if got := b.tree(dir); got["x"] != want || got["named"] != "-> "+target || got["own"] != "own %PORT%" {
					t.Errorf("override %v: %q", override, got)
				}
			}
			if got, err := os.ReadFile(outside); err != nil || string(got) != "theirs %PORT%" {
				t.Errorf("outside: %q, %v", got, err)
			}
		})
	}
}

func TestTemporaryFileIsNeverReused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("theirs"), 0o600))
	b, dir := kept(t, fleet.Plan{})
	trap := filepath.Join(dir, workspace.TempName("x"))
	plan := fleet.Plan{Static: true, Override: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "1"})}}
	for _, put := range []func() error{
		func() error { return os.Symlink(outside, trap) },
		func() error { return unix.Mkfifo(trap, 0o600) },
		func() error { return os.Link(outside, trap) },
	} {
		must(t, os.RemoveAll(filepath.Join(dir, "x")), put())
		if _, err := b.build(plan); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"x": "1"}, b.tree(dir)); diff != "" {
			t.Error(diff)
		}
	}
	if got, err := os.ReadFile(outside); err != nil || string(got) != "theirs" {
		t.Errorf("outside: %q, %v", got, err)
	}
	must(t, os.Remove(filepath.Join(dir, "x")), os.MkdirAll(filepath.Join(trap, "full"), 0o755))
	_, err := b.build(plan)
	mustFail(t, err, fleet.ReasonPrepareFailed)
	if err == nil || !strings.Contains(err.Error(), workspace.TempName("x")+" is in the way") {
		t.Errorf("it does not say what is in the way: %v", err)
	}
}

func TestProtectedPathsHoldBehindSymlinks(t *testing.T) {
	protected := fleet.Plan{Override: true, ProtectedPaths: []string{"world", "ops.json"}}
	b, dir := kept(t, protected)
	must(t,
		os.MkdirAll(filepath.Join(dir, "data/world/deep"), 0o755),
		os.WriteFile(filepath.Join(dir, "data/world/level"), []byte("played"), 0o600), os.WriteFile(filepath.Join(dir, "data/world/deep/y"), []byte("played"), 0o600),
		os.WriteFile(filepath.Join(dir, "ops.json"), []byte("mine"), 0o600), os.WriteFile(filepath.Join(dir, claim.FileName), []byte("lock"), 0o600),
		os.Symlink("data/world", filepath.Join(dir, "world")), // the protected path is a link
		os.Symlink(".", filepath.Join(dir, "here")), os.Symlink("data/world/deep", filepath.Join(dir, "inner")),
	)
	protected.ProtectedPaths = append(protected.ProtectedPaths, "data/world")
	protected.Static = true
	protected.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{
		"world/level": "template", "here/ops.json": "template", "here/" + claim.FileName: "template", "inner/y": "template", "here/other": "template",
	})}
	if _, err := b.build(protected); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"data/world/level": "played", "data/world/deep/y": "played", "ops.json": "mine", claim.FileName: "lock", "other": "template",
		"world": "-> data/world", "here": "-> .", "inner": "-> data/world/deep",
	}
	if diff := cmp.Diff(want, b.tree(dir)); diff != "" {
		t.Error(diff)
	}
}

func TestDirectoryInPlaceOfALinkIsKept(t *testing.T) {
	for _, inside := range []string{"", "level"} {
		b, dir := kept(t, fleet.Plan{Override: true})
		must(t, os.Mkdir(filepath.Join(dir, "current"), 0o755))
		if inside != "" {
			must(t, os.WriteFile(filepath.Join(dir, "current", inside), []byte("played"), 0o600))
		}
		link := content.ManifestEntry{Path: "current", Kind: content.FileSymlink, Target: "worlds"}
		_, err := b.build(fleet.Plan{Static: true, Override: true, Layers: []fleet.PlanLayer{b.layer("a", nil, link)}})
		mustFail(t, err, fleet.ReasonPrepareFailed)
		if err == nil || !strings.Contains(err.Error(), "current is a directory in the static directory and a link in its template") {
			t.Errorf("message: %v", err)
		}
		if fi, err := os.Lstat(filepath.Join(dir, "current")); err != nil || !fi.IsDir() {
			t.Errorf("it is %v, %v", fi, err)
		}
	}
}

func TestDevicesAndPipesAreNeverOpened(t *testing.T) {
	kinds := map[string]func(string) error{"a pipe": func(path string) error { return unix.Mkfifo(path, 0o600) }}
	if isRoot(t) { // files that block on open or have side effects: none is opened
		kinds["a device"] = func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(240, 254))) }
	}
	for name, put := range kinds {
		t.Run(name, func(t *testing.T) {
			b, dir := kept(t, fleet.Plan{})
			for _, at := range []string{"brought", "named", "protected"} {
				must(t, put(filepath.Join(dir, at)))
			}
			plan := fleet.Plan{
				Static: true, Override: true, ProtectedPaths: []string{"protected"}, FileModifications: []string{"named", "protected"},
				Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"brought": "1", "protected": "2"})},
			}
			notes, err := b.build(plan)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"named was not changed: not a file", "protected was not changed: not a file"}, notes); diff != "" {
				t.Error(diff)
			}
			for at, regular := range map[string]bool{"brought": true, "named": false, "protected": false} {
				if fi, err := os.Lstat(filepath.Join(dir, at)); err != nil || fi.Mode().IsRegular() != regular {
					t.Errorf("%s: %v, %v", at, fi.Mode(), err)
				}
			}
			plan.Layers = []fleet.PlanLayer{b.layer("b", map[string]string{"named/below": "1"})}
			_, err = b.build(plan)
			mustFail(t, err, fleet.ReasonPrepareFailed)
		})
	}
}

// asAnybody runs do as a user without special rights, in another process if this one is root.
// It must be the whole test.
func asAnybody(t *testing.T, do func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		do(t)
		return
	}
	dir := t.TempDir()
	exe := filepath.Join(dir, "test")
	from, err := os.Open("/proc/self/exe")
	must(t, err)
	defer from.Close()
	to, err := os.OpenFile(exe, os.O_WRONLY|os.O_CREATE, 0o755)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, err, to.Close(), os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Chmod(exe, 0o755), os.Chown(dir, stranger, stranger))
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestReadOnlyDirectoryFailsOnlyIfItMustChange(t *testing.T) {
	asAnybody(t, func(t *testing.T) {
		plan := fleet.Plan{Static: true, Override: true, FileModifications: []string{"plugins/text"}}
		b, dir := kept(t, plan)
		files := map[string]string{"plugins/a.jar": "1", "plugins/text": "%PORT%"}
		plan.Layers = []fleet.PlanLayer{b.layer("a", files)}
		if _, err := b.build(plan); err != nil {
			t.Fatal(err)
		}
		plugins := filepath.Join(dir, "plugins")
		must(t, os.Chmod(plugins, 0o555))
		if _, err := b.build(plan); err != nil {
			t.Errorf("nothing is to be changed: %v", err)
		}
		files["plugins/a.jar"] = "2"
		plan.Layers = []fleet.PlanLayer{b.layer("a", files)}
		_, err := b.build(plan)
		mustFail(t, err, fleet.ReasonPrepareFailed)
		if err == nil || !strings.Contains(err.Error(), "plugins/a.jar in the static directory has to be changed") {
			t.Errorf("message: %v", err)
		}
		if fi, err := os.Stat(plugins); err != nil || fi.Mode().Perm() != 0o555 {
			t.Errorf("a read-only directory was made writable: %v, %v", fi.Mode(), err)
		}
		plan.ProtectedPaths = []string{"plugins/a.jar"}
		if _, err := b.build(plan); err != nil {
			t.Errorf("protected: %v", err)
		}
		if diff := cmp.Diff(map[string]string{"plugins/a.jar": "1", "plugins/text": "25565"}, b.tree(dir)); diff != "" {
			t.Error(diff)
		}
		must(t, os.Chmod(plugins, 0o755)) // lets the test's directory be removed
	})
}
