// Package golden compares test output with golden files. ORRERY_UPDATE_GOLDEN=1 rewrites
// the files; review them before you commit them.
package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// File compares a text with a file in the test's testdata directory.
func File(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("ORRERY_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if this is right, run with ORRERY_UPDATE_GOLDEN=1: %s", path, diff)
	}
}
