package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/disktest"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

const page = 4 << 10

// leave fills a disk except for some pages.
func leave(t *testing.T, path string, pages int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, block := 0, make([]byte, page)
	for err == nil {
		var n int
		n, err = f.Write(block)
		size += n
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(max(0, size-pages*page))); err != nil {
		t.Fatal(err)
	}
}

func TestDiskFullAtAnyStepFailsCleanly(t *testing.T) {
	disktest.Small(t, "384k", buildAtEveryFilling)
}

func buildAtEveryFilling(t *testing.T, dir string) {
	b := newBench(t)
	b.data = dir
	jar := strings.Repeat("j", 2*page)
	b.contents[sum([]byte(jar))] = []byte(jar)
	plan := func(version string) fleet.Plan {
		return fleet.Plan{
			Override: true, Artifact: artifactOf(jar), FileModifications: []string{"listed"}, Merge: []string{"**/*.yml"},
			Patches: []configfile.ConfigPatch{configPatch(configfile.PatchSet, "made.yml", "a", "1"), configPatch(configfile.PatchSet, "a.yml", "c", "2")},
			Layers: []fleet.PlanLayer{
				b.layer("a", map[string]string{"a.yml": "a: " + version, "listed": "%PORT%" + version, "deep/x": strings.Repeat(version, 3*page)}),
				b.layer("b", map[string]string{"a.yml": "b: 1", "small": version}),
			},
		}
	}
	static := plan("s")
	static.Static = true
	outcomes := map[bool]int{}
	for pages := range 40 {
		cache, err := blobcache.Open(filepath.Join(dir, "blobs"), b.shelf, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.builder = workspace.New(dir, cache)
		if _, err := b.build(static); err != nil { // it fits
			t.Fatal(err)
		}
		filler := filepath.Join(dir, "filler")
		leave(t, filler, pages)
		next := plan("d")
		again := plan("t")
		again.Static = true
		for _, p := range []fleet.Plan{next, again} {
			_, err := b.build(p)
			outcomes[err == nil]++
			if err != nil {
				mustFail(t, err, fleet.ReasonDiskFull)
			}
			clean(t, dir, p.Static || err == nil)
		}
		if got := b.tree(b.builder.Dir(placement(), fleet.Plan{Static: true})); got["deep/x"] != strings.Repeat("s", 3*page) && got["deep/x"] != strings.Repeat("t", 3*page) {
			t.Errorf("%d pages: a file of the static directory is of neither version", pages)
		}
		for _, gone := range []string{filler, filepath.Join(dir, "running"), filepath.Join(dir, "static"), filepath.Join(dir, "blobs")} {
			if err := os.RemoveAll(gone); err != nil {
				t.Fatal(err)
			}
		}
	}
	if outcomes[true] == 0 || outcomes[false] == 0 {
		t.Errorf("only one outcome occurred: %v", outcomes)
	}
}

// clean fails if an incomplete file was left below a directory.
func clean(t *testing.T, dir string, built bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (strings.HasPrefix(d.Name(), ".new-") || strings.HasPrefix(d.Name(), ".orrery-new-")) {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "running", string(placement().Instance))); err == nil && !built {
		t.Error("an incomplete directory was left behind")
	}
}
