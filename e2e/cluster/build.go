package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// Root is the repository's top directory.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("no caller information")
	}
	return filepath.Join(filepath.Dir(file), "..", "..")
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

// Cleanup deletes the built programs. Call it last in TestMain.
func Cleanup() {
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}
