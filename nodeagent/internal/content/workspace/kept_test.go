package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// look is the state of a file that must not change.
type look struct {
	Inode    uint64
	Modified time.Time
}

func (b *bench) look(path string) look {
	b.t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return look{fi.Sys().(*syscall.Stat_t).Ino, fi.ModTime()}
}

func TestUnchangedStaticFilesAreNotRewritten(t *testing.T) {
	b := newBench(t)
	link := content.ManifestEntry{Path: "link", Kind: content.FileSymlink, Target: "same"}
	large := strings.Repeat("0123456789abcdef", 40<<10)
	empty := content.ManifestEntry{Path: "empty", Mode: 0o644, SHA256: sum(nil)}
	b.contents[sum(nil)] = nil
	plan := fleet.Plan{Static: true, Override: true, FileModifications: []string{"text"}, Layers: []fleet.PlanLayer{
		b.layer("a", map[string]string{"same": "1", "deep/large": large, "text": "port %PORT%", "longer": "1", "other": "1", "tail": large}, link, empty),
	}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	dir := b.builder.Dir(placement(), fleet.Plan{Static: true})
	kept := []string{"same", "deep/large", "text", "link", "empty"}
	long := time.Unix(1e9, 0)
	before := map[string]look{}
	for _, name := range kept {
		if name != "link" {
			if err := os.Chtimes(filepath.Join(dir, name), long, long); err != nil {
				t.Fatal(err)
			}
		}
		before[name] = b.look(filepath.Join(dir, name))
	}
	written := map[string]string{"longer": "12", "other": "2", "tail": large[:len(large)-1] + "x"}
	for name, content := range written {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "same"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	after := map[string]look{}
	for _, name := range kept {
		after[name] = b.look(filepath.Join(dir, name))
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("unchanged files: %s", diff)
	}
	for name := range written {
		if got := b.tree(dir)[name]; got == written[name] {
			t.Errorf("%s was not put back", name)
		}
	}
	if fi, err := os.Stat(filepath.Join(dir, "same")); err != nil || fi.Mode() != 0o644 {
		t.Errorf("the mode of an unchanged file: %v, %v", fi.Mode(), err)
	}
}

func TestHardLinkedFileIsReplaced(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{Static: true, Override: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "1"})}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	dir, outside := b.builder.Dir(placement(), fleet.Plan{Static: true}), filepath.Join(t.TempDir(), "outside")
	if err := os.Link(filepath.Join(dir, "x"), outside); err != nil {
		t.Fatal(err)
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if b.look(outside).Inode == b.look(filepath.Join(dir, "x")).Inode {
		t.Error("the other name still leads to the instance's file")
	}
}

func TestPlaceholdersSkipNonRegularFiles(t *testing.T) {
	kinds := map[string]func(path string) error{
		"a pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a socket":    func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
	}
	for name, put := range kinds {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			plan := fleet.Plan{Static: true, FileModifications: []string{"own", "brought"}}
			if _, err := b.build(plan); err != nil {
				t.Fatal(err)
			}
			dir := b.builder.Dir(placement(), fleet.Plan{Static: true})
			if err := errors.Join(put(filepath.Join(dir, "own")), put(filepath.Join(dir, "brought"))); err != nil {
				t.Fatal(err)
			}
			plan.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{"brought": "%PORT%"})}
			notes, err := b.build(plan)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"brought was not changed: not a file", "own was not changed: not a file"}, notes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPipeInPlaceOfAFileIsReplaced(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{Static: true, Override: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": ""})}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	x := filepath.Join(b.builder.Dir(placement(), fleet.Plan{Static: true}), "x")
	if err := errors.Join(os.Remove(x), unix.Mkfifo(x, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(x); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
}

func TestFileWithMaximalNameIsReplaced(t *testing.T) {
	b := newBench(t)
	name := strings.Repeat("n", 255)
	plan := fleet.Plan{Static: true, Override: true}
	for _, content := range []string{"1", "2"} {
		plan.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{name: content, "d/" + name: content})}
		if _, err := b.build(plan); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{name: content, "d/" + name: content}
		if diff := cmp.Diff(want, b.tree(b.builder.Dir(placement(), fleet.Plan{Static: true}))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestFileOfAnotherKindIsKept(t *testing.T) {
	cases := map[string]struct{ path, theirs, says string }{
		"a directory where the template has a file": {"x", "x/level", "x is a directory"},
		"a file where the template has a directory": {"x/y", "x", "x is a file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			plan := fleet.Plan{Static: true, Override: true}
			if _, err := b.build(plan); err != nil {
				t.Fatal(err)
			}
			theirs := filepath.Join(b.builder.Dir(placement(), fleet.Plan{Static: true}), c.theirs)
			if err := errors.Join(os.MkdirAll(filepath.Dir(theirs), 0o755), os.WriteFile(theirs, []byte("played"), 0o600)); err != nil {
				t.Fatal(err)
			}
			plan.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{c.path: "template"})}
			_, err := b.build(plan)
			mustFail(t, err, fleet.ReasonPrepareFailed)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("message: %v", err)
			}
			if got := b.tree(b.builder.Dir(placement(), fleet.Plan{Static: true})); !cmp.Equal(got, map[string]string{c.theirs: "played"}) {
				t.Errorf("left is %v", got)
			}
		})
	}
}
