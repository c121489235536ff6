// Package disktest runs a test on a filesystem that is soon full.
package disktest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// variable names the directory on which a child of a test mounts its filesystem.
const variable = "ORRERY_TEST_SMALL_DISK"

// Small calls do with a directory on an empty filesystem of that size, as mount has it
// ("256k"): in a child of the test, which sees its mounts alone. It is the whole of its
// test, and is skipped where nobody may mount, but not where all tests must run.
func Small(t *testing.T, size string, do func(t *testing.T, dir string)) {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		mount(t, dir, size)
		do(t, dir)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit) && os.Getenv("ORRERY_CI") == "":
		t.Skipf("no mount namespaces here: %v", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
}

func mount(t *testing.T, dir, size string) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
}
