// Package vm boots guests with systemd and control groups, for scenarios that need a whole
// machine: services, limits, reboots, power cuts, clocks.
//
// A guest is a Debian 12 (see guest.sh). It is emulated without the host's virtualization
// support, so it runs wherever qemu does. It has no connection to the host's networks.
// Tests run commands through a virtio port and QEMU's guest agent.
package vm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed guest.sh
var recipe []byte

// image is the guest's disk, kernel and initrd.
type image struct{ disk, kernel, initrd string }

// buildBound limits the build of the image, which takes some minutes on a busy machine.
const buildBound = 30 * time.Minute

// guestImage builds the image unless the user's cache has one from the same recipe.
func guestImage(t testing.TB) image {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, fmt.Sprintf("orrery-guest-%.8x", sha256.Sum256(recipe)))
	i := image{disk: filepath.Join(dir, "disk"), kernel: filepath.Join(dir, "kernel"), initrd: filepath.Join(dir, "initrd")}
	if _, err := os.Stat(i.initrd); err == nil {
		return i
	}
	needs(t, "debootstrap", "mkfs.ext4")
	if os.Geteuid() != 0 {
		lacking(t, "only root can build the guest: run sudo e2e/vm/guest.sh %s once", dir)
	}
	ctx, cancel := context.WithTimeout(t.Context(), buildBound)
	defer cancel()
	began := time.Now()
	if out, err := exec.CommandContext(ctx, filepath.Join(repository(t), "e2e/vm/guest.sh"), dir).CombinedOutput(); err != nil {
		t.Fatalf("building the guest: %v\n%s", err, out)
	}
	t.Logf("the guest's image took %v", time.Since(began).Round(time.Second))
	return i
}

// needs skips the test on a machine that lacks a program.
func needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); errors.Is(err, exec.ErrNotFound) {
			lacking(t, "%s is not installed", p)
		}
	}
}

// lacking skips the test, or fails it where every test must run.
func lacking(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("ORRERY_CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
