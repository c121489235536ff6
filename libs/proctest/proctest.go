// Package proctest inspects the machine's processes in tests.
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

// Process is a process ID.
type Process int

func (p Process) path(file string) string {
	return filepath.Join("/proc", strconv.Itoa(int(p)), file)
}

// Dir returns the working directory, "" if the process has ended or belongs to another user.
func (p Process) Dir() string {
	dir, _ := os.Readlink(p.path("cwd"))
	return dir
}

// Carries reports whether the process was started with the environment entry NAME=VALUE.
func (p Process) Carries(setting string) bool {
	b, _ := os.ReadFile(p.path("environ"))
	return slices.Contains(strings.Split(string(b), "\x00"), setting)
}

// stat returns the fields of /proc/PID/stat from the state on, nil if the process has ended.
func (p Process) stat() []string {
	b, _ := os.ReadFile(p.path("stat"))
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the command name before it may contain anything
}

// Where returns the IDs of all processes for which wanted returns true.
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

// Lives reports whether a process runs. A zombie does not.
func Lives(pid int) bool {
	stat := Process(pid).stat()
	return len(stat) > 0 && stat[0] != "Z"
}

// StartTime returns the start time of a process in clock ticks since boot. PID and start time
// together identify a process.
func StartTime(t testing.TB, pid int) uint64 {
	t.Helper()
	stat := Process(pid).stat()
	if len(stat) < 20 {
		t.Fatalf("process %d does not exist", pid)
	}
	n, err := strconv.ParseUint(stat[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Bystander starts an idle process in its own session, kills it at the end of the test, and
// returns its ID.
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
