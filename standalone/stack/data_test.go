package stack

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOtherUsersReadNoTemplates(t *testing.T) {
	dir := t.TempDir()
	templates := filepath.Join(dir, "templates")
	for _, when := range []string{"new", "of an earlier version"} {
		d, err := openDataDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		d.close()
		if fi, err := os.Stat(templates); err != nil || fi.Mode().Perm() != 0o750 {
			t.Errorf("%s: %v, %v", when, fi.Mode(), err)
		}
		if err := os.Chmod(templates, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
