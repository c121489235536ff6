package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// reflinkBytes is the nominal size of the sparse disk image.
const reflinkBytes = 2 * templateRoom

// reflinkDisk returns a copy of the bench on a file system with shared blocks: XFS in a
// file. etcd stays on the original file system, because its flushes would otherwise cost
// twice, unlike those of cp. release unmounts the disk and must be called. The function
// needs administrator rights and mkfs.xfs; its error says what is missing.
func (b *bench) reflinkDisk(ctx context.Context) (there *bench, release func() error, err error) {
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		return nil, nil, fmt.Errorf("%s shares no blocks, and there is no mkfs.xfs (package xfsprogs): %w", b.dir, err)
	}
	if os.Geteuid() != 0 {
		return nil, nil, fmt.Errorf("%s shares no blocks, and only root can mount a file system that does", b.dir)
	}
	image, at := filepath.Join(b.dir, "reflink.img"), filepath.Join(b.dir, "reflink")
	remove := func() error { return errors.Join(os.Remove(at), os.Remove(image)) }
	file, err := os.Create(image)
	if err == nil {
		err = errors.Join(file.Truncate(reflinkBytes), file.Close(), os.Mkdir(at, 0o755))
	}
	if err != nil {
		return nil, nil, err
	}
	// The option loop removes the loop device with the mount.
	for _, line := range [][]string{{"mkfs.xfs", "-q", "-m", "reflink=1", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s: %w: %s", line[0], err, strings.TrimSpace(string(out))), remove())
		}
	}
	other := *b
	other.dir, other.etcdDir = at, b.dir
	return &other, func() error {
		// Without ctx, so that it is also unmounted after an interrupt.
		out, err := exec.Command("umount", at).CombinedOutput()
		if err != nil {
			return fmt.Errorf("umount %s: %w: %s", at, err, strings.TrimSpace(string(out)))
		}
		return remove()
	}, nil
}
