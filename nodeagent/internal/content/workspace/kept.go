package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
)

// compareBuffer is the size of the buffers that same compares, in bytes.
const compareBuffer = 128 << 10

// keeps reports whether an existing file stays unchanged.
func (a *applier) keeps(p string) bool {
	if a.fresh {
		return false
	}
	if _, err := a.root.Lstat(p); err != nil {
		return false
	}
	return !a.request.Plan.Override || a.protected(p)
}

// protected reports whether a file is protected, by its path or by the real path behind
// symlinks that the server has created. The lock file is always protected.
func (a *applier) protected(p string) bool {
	if protects(a.request.Plan.ProtectedPaths, p) {
		return true
	}
	really := resolve(a.root, p)
	return really != p && (really == claim.FileName || protects(a.request.Plan.ProtectedPaths, really))
}

// resolve returns p with the symlinks in its directory followed, or p itself if they are dangling.
func resolve(root *os.Root, p string) string {
	dir, name := path.Split(p)
	if dir == "" {
		return p
	}
	top, err := realPath(root, ".")
	if err != nil {
		return p
	}
	at, err := realPath(root, path.Clean(dir))
	if err != nil {
		return p
	}
	return path.Join(strings.TrimPrefix(strings.TrimPrefix(at, top), "/"), name)
}

// realPath returns the kernel's path of a directory.
func realPath(root *os.Root, dir string) (string, error) {
	f, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// update makes a file have the given content and mode. It does not rewrite a file that has
// this content already.
func (a *applier) update(p string, c body) error {
	size, want := c.size, io.Reader(io.NewSectionReader(c.blob, 0, c.size))
	if c.generated {
		size, want = int64(len(c.text)), bytes.NewReader(c.text)
	}
	if a.hasContent(p, size, want) {
		return a.updateMode(p, c.mode)
	}
	return a.replace(p, c)
}

// replace writes a new file and renames it over the old one.
func (a *applier) replace(p string, c body) error {
	if fi, err := a.root.Lstat(p); err == nil && fi.IsDir() {
		return inTheWay(p, "a directory", "a file")
	}
	name := tempName(p)
	_ = a.root.Remove(name)
	dst, err := a.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &Failure{Reason: fleet.ReasonPrepareFailed, Err: err, Message: fmt.Sprintf(
			"%s in the static directory has to be changed, but the agent may not write to its parent directory: allow it (chmod u+w), or add the file to protectedPaths", p)}
	case errors.Is(err, fs.ErrExist):
		return &Failure{Reason: fleet.ReasonPrepareFailed, Err: err, Message: fmt.Sprintf(
			"%s is in the way of a temporary file in the static directory: remove it", name)}
	case err != nil:
		return err
	}
	err = errors.Join(c.fill(dst), dst.Chmod(c.mode))
	if err == nil && !a.fresh {
		err = a.builder.sync(dst)
	}
	if err = errors.Join(err, dst.Close()); err == nil {
		err = a.root.Rename(name, p)
	}
	if err != nil {
		_ = a.root.Remove(name)
	}
	return err
}

// tempName returns the temporary name of a file. It is a hash, because a suffix could make
// the name too long for the filesystem.
func tempName(p string) string {
	sum := sha256.Sum256([]byte(p))
	return path.Join(path.Dir(p), ".orrery-new-"+hex.EncodeToString(sum[:12]))
}

// openKept opens a regular file of a kept static directory. It returns nil for anything else,
// such as a pipe, which would block, or a symlink.
func (a *applier) openKept(p string) (*os.File, fs.FileInfo, error) {
	// Check first, because just opening a device can have an effect.
	if fi, err := a.root.Lstat(p); err != nil || !fi.Mode().IsRegular() {
		return nil, nil, err
	}
	f, err := a.root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		_ = f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// hasContent reports whether a regular file of a static directory has exactly this content. A
// file with several hard links does not count, because it can be changed by its other names.
func (a *applier) hasContent(p string, size int64, want io.Reader) bool {
	f, fi, err := a.openKept(p)
	if err != nil || f == nil {
		return false
	}
	defer f.Close()
	return fi.Size() == size && links(fi) == 1 && same(f, want)
}

// updateMode gives an unchanged file the mode that its template has.
func (a *applier) updateMode(p string, mode fs.FileMode) error {
	if fi, err := a.root.Lstat(p); err != nil || fi.Mode() == mode {
		return err
	}
	return a.root.Chmod(p, mode)
}

// inTheWay is the failure for a static directory that has another kind of file than the
// template. It may be the only copy of a world, so it is not removed.
func inTheWay(p, is, wanted string) error {
	return &Failure{Reason: fleet.ReasonPrepareFailed, Message: fmt.Sprintf(
		"%s is %s in the static directory and %s in its template: move it away, or take it out of the template", p, is, wanted)}
}

func links(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 0
}

// same reports whether two readers return the same bytes until EOF.
func same(a, b io.Reader) bool {
	x, y := make([]byte, compareBuffer), make([]byte, compareBuffer)
	for {
		n, errX := io.ReadFull(a, x)
		m, errY := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) || !ended(errX) || !ended(errY) {
			return false
		}
		if errX != nil { // errY is set too, because both returned the same number of bytes
			return true
		}
	}
}

// ended reports whether a read succeeded or met EOF.
func ended(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
