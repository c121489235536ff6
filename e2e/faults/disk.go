package main

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk is a small file system for a node's data directory.
type disk struct{ dir string }

// diskBytes is the size of a disk: enough for a scenario, and quickly full.
const diskBytes = "size=16m"

// ballast is the file that fills it.
const ballast = "ballast"

// mountDisk mounts a disk at a directory. It needs administrator rights.
func mountDisk(dir string) (*disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &disk{dir: dir}, unix.Mount("orrery-faults", dir, "tmpfs", 0, diskBytes)
}

// fill fills the disk completely.
func (d *disk) fill() error {
	f, err := os.Create(filepath.Join(d.dir, ballast))
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		switch _, err := f.Write(block); {
		case errors.Is(err, unix.ENOSPC):
			block = block[:len(block)/2] // down to the last byte
		case err != nil:
			return err
		}
	}
	return nil
}

// free undoes fill.
func (d *disk) free() error {
	err := os.Remove(filepath.Join(d.dir, ballast))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// unmount detaches the disk, even while files on it are open.
func (d *disk) unmount() error { return unix.Unmount(d.dir, unix.MNT_DETACH) }

// disksAllowed reports whether this process may mount disks.
func disksAllowed() bool {
	dir, err := os.MkdirTemp("", "orrery-faults-disk-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	d, err := mountDisk(dir)
	return err == nil && d.unmount() == nil
}
