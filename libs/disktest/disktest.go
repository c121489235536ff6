// Package disktest runs tests on a small file system.
package disktest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// variable names the directory where the child process mounts the file system.
const variable = "ORRERY_TEST_SMALL_DISK"

// Small calls do with a directory on an empty file system of the given size, in the syntax of
// mount ("256k"). It runs the test again in a child process with its own mounts, so it must be the
// whole test. It skips the test if mounting is not allowed, unless ORRERY_CI is set.
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
		t.Skipf("mount namespaces are not available: %v", err)
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
