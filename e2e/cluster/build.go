package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster/site"
)

// Root is the repository's top directory: the one with go.work, at or above the directory
// in which the test runs. A test that was built with -trimpath does not know its source.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.work at or above the working directory: run the test inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// builds compiles each program once per test process.
type builds struct {
	mu   sync.Mutex
	dir  string
	done map[string]error
}

var built = &builds{done: map[string]error{}}

// Program builds a command of the workspace, such as "./scheduler/cmd/scheduler", and
// returns the path of its binary.
func Program(t testing.TB, pkg string) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "orrery-e2e-bin-")
		if err == nil {
			err = site.Open(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		built.dir = dir
	}
	bin := filepath.Join(built.dir, filepath.Base(pkg))
	err, ok := built.done[pkg]
	if !ok {
		cmd := exec.Command("go", "build", "-o", bin, pkg)
		cmd.Dir = Root(t)
		cmd.Stderr = os.Stderr
		err = cmd.Run()
		built.done[pkg] = err
	}
	if err != nil {
		t.Fatalf("building %s: %v", pkg, err)
	}
	return bin
}

// OpenDir returns a temporary directory to which instances can write, whoever they run as.
func OpenDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := site.Open(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Cleanup deletes the built programs. Call it last in TestMain.
func Cleanup() {
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}
