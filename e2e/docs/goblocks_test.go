package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// goBlock is a fenced block with a Go program.
var goBlock = regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n")

// TestGoPrograms compiles the Go programs of the pages.
func TestGoPrograms(t *testing.T) {
	root := cluster.Root(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir, found := t.TempDir(), 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range goBlock.FindAllSubmatch(text, -1) {
			found++
			file := filepath.Join(dir, "main.go")
			if err := os.WriteFile(file, append(block[1], '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "vet", file)
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", page, err, out)
			}
		}
	}
	if found == 0 {
		t.Error("no page has a Go program")
	}
}
