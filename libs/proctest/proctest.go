// Package proctest is for tests that look at the processes of the machine: which
// there are, whether one lives, and one that has nothing to do with any of it.
package proctest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Process is one by its pid.
type Process int

func (p Process) path(file string) string {
	return filepath.Join("/proc", strconv.Itoa(int(p)), file)
}

// Dir is where it works; empty when it is gone or another user's.
func (p Process) Dir() string {
	dir, _ := os.Readlink(p.path("cwd"))
	return dir
}

// Carries reports whether it was started with a setting, as NAME=VALUE, in its
// environment.
func (p Process) Carries(setting string) bool {
	b, _ := os.ReadFile(p.path("environ"))
	return slices.Contains(strings.Split(string(b), "\x00"), setting)
}

// stat is its state and what follows; nil when it is gone.
func (p Process) stat() []string {
	b, _ := os.ReadFile(p.path("stat"))
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the command before it may hold anything
}

// Where are the pids of all processes that are as wanted.
func Where(t testing.TB, wanted func(Process) bool) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && wanted(Process(pid)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Lives reports whether a process runs. One that has ended does not, though nobody
// has asked for its exit code yet.
func Lives(pid int) bool {
	stat := Process(pid).stat()
	return len(stat) > 0 && stat[0] != "Z"
}

// StartTime is when a process began, as the kernel counts: with its pid it names
// it, whoever has the pid later.
func StartTime(t testing.TB, pid int) uint64 {
	t.Helper()
	stat := Process(pid).stat()
	if len(stat) < 20 {
		t.Fatalf("there is no process %d", pid)
	}
	n, err := strconv.ParseUint(stat[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Bystander starts a process in a session of its own that does nothing until the
// test ends, and returns its pid.
func Bystander(t testing.TB) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}
