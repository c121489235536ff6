package directory

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPollingFindsWhatNotificationsWouldTell(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "g", "t", "kept"), "a")
	put(t, filepath.Join(dir, "g", "t", "changed"), "a")
	put(t, filepath.Join(dir, "g", "t", "gone"), "a")
	var p poller
	found := func() []string {
		var all []string
		for _, ev := range p.look(dir) {
			name, _ := filepath.Rel(dir, ev.Name)
			all = append(all, strings.ToLower(ev.Op.String())+" "+name)
		}
		slices.Sort(all)
		return all
	}
	if got := found(); got != nil {
		t.Errorf("the first look: %v", got)
	}
	put(t, filepath.Join(dir, "g", "t", "changed"), "longer")
	put(t, filepath.Join(dir, "g", "new", "sub", "f"), "a")
	if err := os.Remove(filepath.Join(dir, "g", "t", "gone")); err != nil {
		t.Fatal(err)
	}
	want := []string{"create g/new", "create g/new/sub", "create g/new/sub/f", "remove g/t/gone", "write g/t/changed"}
	if got := found(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "g", "t", "kept"), later, later); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "g", "t", "changed"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, want := found(), []string{"write g/t/changed", "write g/t/kept"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := found(); got != nil {
		t.Errorf("nothing changed: %v", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, "g")); err != nil {
		t.Fatal(err)
	}
	if got := found(); len(got) != 7 {
		t.Errorf("all is gone: %v", got)
	}
}
