package workspace_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

func TestManyFilesAndDirectoriesAreWritten(t *testing.T) {
	b := newBench(t)
	want := map[string]string{"large": strings.Repeat("large", 1<<20), "deep/large": strings.Repeat("other", 2<<20), "empty": ""}
	for i := range 300 {
		want[fmt.Sprintf("flat/%d", i)] = fmt.Sprint("flat ", i)
		want[fmt.Sprintf("d%d/e/f", i)] = fmt.Sprint("deep ", i)
	}
	if _, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", want)}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.tree(b.builder.Dir(placement(), fleet.Plan{}))); diff != "" {
		t.Error(diff)
	}
}

func TestFileModesIgnoreTheUmask(t *testing.T) {
	b := newBench(t)
	var entries []content.ManifestEntry
	modes := map[string]fs.FileMode{"open": 0o666, "all": 0o777, "read": 0o444, "own": 0o600, "group": 0o660}
	for name, mode := range modes {
		e, content := file(name, name)
		e.Mode = uint32(mode)
		b.contents[e.SHA256] = []byte(content)
		entries = append(entries, e)
	}
	if _, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", nil, entries...)}}); err != nil {
		t.Fatal(err)
	}
	got := map[string]fs.FileMode{}
	for name := range modes {
		fi, err := os.Stat(filepath.Join(b.builder.Dir(placement(), fleet.Plan{}), name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = fi.Mode()
	}
	if diff := cmp.Diff(modes, got); diff != "" {
		t.Error(diff)
	}
}

func TestFilesAreCopiedAcrossFilesystems(t *testing.T) {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil && os.Getenv("ORRERY_CI") == "" {
		t.Skipf("no filesystem in memory here: %v", err)
	}
	elsewhere, err := os.MkdirTemp(memory, "orrery-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(elsewhere)
	b := newBench(t)
	cache, err := blobcache.Open(filepath.Join(elsewhere, "blobs"), b.shelf, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.builder = workspace.New(b.data, cache)
	want := map[string]string{"x": "small", "y": strings.Repeat("large", 200<<10), "z": "port %PORT%", "empty": ""}
	plan := fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", want)}, FileModifications: []string{"z"}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	want["z"] = "port 25565"
	if diff := cmp.Diff(want, b.tree(b.builder.Dir(placement(), fleet.Plan{}))); diff != "" {
		t.Error(diff)
	}
}

func TestExt4SpreadsInstanceDirectories(t *testing.T) {
	b := newBench(t)
	if _, err := b.build(fleet.Plan{}); err != nil {
		t.Fatal(err)
	}
	parent, err := os.Open(filepath.Dir(b.builder.Dir(placement(), fleet.Plan{})))
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(parent.Fd()), &st); err != nil || st.Type != unix.EXT4_SUPER_MAGIC {
		return // the filesystem has no such attribute
	}
	const topOfHierarchy = 0x20000
	if flags, err := unix.IoctlGetUint32(int(parent.Fd()), unix.FS_IOC_GETFLAGS); err != nil || flags&topOfHierarchy == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}
