package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// flushes records the flushed paths, relative to the data directory, each with the state of
// the path at.
func (b *bench) flushes(at string) func() []string {
	var mu sync.Mutex
	var all []string
	b.builder.SetSync(func(f *os.File) error {
		path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
		if err != nil {
			return err
		}
		name, err := filepath.Rel(b.data, path)
		if err != nil {
			return err
		}
		if content, err := os.ReadFile(at); err == nil {
			name += " with " + string(content)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, name)
		return f.Sync()
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { all = nil }()
		return all
	}
}

func TestStaticDirectoryIsFlushedBeforeRename(t *testing.T) {
	b := newBench(t)
	dir := b.builder.Dir(placement(), fleet.Plan{Static: true})
	flushed := b.flushes(filepath.Join(dir, "x"))
	secretive := content.ManifestEntry{Path: "d/unreadable", Mode: 0o200, Size: 1, SHA256: sum([]byte("1"))}
	plan := fleet.Plan{
		Static: true, Override: true, FileModifications: []string{"text"}, Patches: []configfile.ConfigPatch{configPatch(configfile.PatchSet, "made.yml", "a", "1")},
		Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "1", "d/e/y": "2", "text": "%PORT%"}, secretive)},
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	got := flushed()
	const staging = "static/g/.new-g-1-n"
	if last := []string{"static/g with 1", "static with 1", ". with 1"}; !cmp.Equal(got[max(0, len(got)-3):], last) {
		t.Errorf("last was flushed %q, want %q", got, last)
	}
	first := got[:len(got)-3]
	slices.Sort(first)
	want := []string{staging, staging + "/d", staging + "/d/e", staging + "/d/e/y", staging + "/made.yml", staging + "/text", staging + "/x"}
	if os.Geteuid() == 0 {
		want = slices.Insert(want, 4, staging+"/d/unreadable")
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Error(diff)
	}

	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if got := flushed(); len(got) > 0 {
		t.Errorf("no file changed, flushed %q", got)
	}
	plan.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{"x": "changed", "d/e/y": "2", "text": "%PORT%", "new": "3"})}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	got = flushed()
	if len(got) != 2 || slices.ContainsFunc(got, func(name string) bool { return !strings.HasPrefix(name, "static/g/g-1/.orrery-new-") }) {
		t.Errorf("two files changed, flushed before their rename: %q", got)
	}
	plan.Static = false
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if got := flushed(); len(got) > 0 {
		t.Errorf("a dynamic directory was flushed: %q", got)
	}
}

func TestFailedFlushLeavesNoDirectory(t *testing.T) {
	for reason, err := range map[fleet.Reason]error{fleet.ReasonPrepareFailed: unix.EIO, fleet.ReasonDiskFull: unix.ENOSPC} {
		b := newBench(t)
		b.builder.SetSync(func(f *os.File) error { return &os.PathError{Op: "sync", Path: f.Name(), Err: err} })
		plan := fleet.Plan{Static: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "1"})}}
		_, err := b.build(plan)
		mustFail(t, err, reason)
		if left, err := os.ReadDir(filepath.Join(b.data, "static", "g")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		b.builder.SetSync((*os.File).Sync)
		if _, err := b.build(plan); err != nil {
			t.Fatal(err)
		}
		b.builder.SetSync(func(*os.File) error { return errors.Join(unix.EIO) })
		plan.Override, plan.Layers = true, []fleet.PlanLayer{b.layer("a", map[string]string{"x": "2"})}
		_, err = b.build(plan)
		mustFail(t, err, fleet.ReasonPrepareFailed)
		if diff := cmp.Diff(map[string]string{"x": "1"}, b.tree(b.builder.Dir(placement(), fleet.Plan{Static: true}))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestUnsupportedDirectoryFlushIsIgnored(t *testing.T) {
	for _, says := range []error{unix.EINVAL, unix.ENOTSUP} {
		b := newBench(t)
		b.builder.SetSync(func(f *os.File) error {
			if fi, err := f.Stat(); err != nil || fi.IsDir() {
				return errors.Join(err, &os.PathError{Op: "sync", Path: f.Name(), Err: says})
			}
			return f.Sync()
		})
		plan := fleet.Plan{Static: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"d/x": "1"})}}
		if _, err := b.build(plan); err != nil {
			t.Errorf("where it says %v: %v", says, err)
		}
		b.builder.SetSync(func(f *os.File) error { return &os.PathError{Op: "sync", Path: f.Name(), Err: says} })
		if err := os.RemoveAll(b.builder.Dir(placement(), fleet.Plan{Static: true})); err != nil {
			t.Fatal(err)
		}
		_, err := b.build(plan)
		mustFail(t, err, fleet.ReasonPrepareFailed) // a file that is not flushed may be lost
	}
}
