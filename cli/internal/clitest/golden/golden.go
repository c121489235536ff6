// Package golden compares the output of a test with a file in testdata.
package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// updateVariable is the environment variable that makes Equal write the files.
const updateVariable = "ORRERY_UPDATE_GOLDEN"

// Equal fails the test if got is not the content of testdata/name. With ORRERY_UPDATE_GOLDEN=1
// it writes the file instead.
func Equal(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if os.Getenv(updateVariable) == "1" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with %s=1", err, updateVariable)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}
