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
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/claim"
)

// compareBuffer is how much of two files is compared at once.
const compareBuffer = 128 << 10

// keeps reports whether a file that is there already stays as it is.
func (a *application) keeps(p string) bool {
	if a.fresh {
		return false
	}
	if _, err := a.root.Lstat(p); err != nil {
		return false
	}
	return !a.request.Plan.Override || a.protected(p)
}

// protected reports whether a file is, by its name or by where links lead that the server
// has put on the way to it. Nobody but the agent writes to the lock file.
func (a *application) protected(p string) bool {
	if protects(a.request.Plan.ProtectedPaths, p) {
		return true
	}
	really := a.ways.resolved(a.root, p)
	return really != p && (really == claim.FileName || protects(a.request.Plan.ProtectedPaths, really))
}

// ways are where the directories of a static directory really are, by their names. It is
// used by several copiers at once.
type ways struct {
	mu   sync.Mutex
	dirs map[string]string
}

// resolved is a path with the links on the way to it followed; itself where that
// leads nowhere.
func (w *ways) resolved(root *os.Root, p string) string {
	dir, name := path.Split(p)
	if dir = path.Clean(dir); dir == "." {
		return p
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	really, ok := w.dirs[dir]
	if !ok {
		really = dir
		if top, err := wayOf(root, "."); err == nil {
			if at, err := wayOf(root, dir); err == nil {
				really = strings.TrimPrefix(strings.TrimPrefix(at, top), "/")
			}
		}
		if w.dirs == nil {
			w.dirs = map[string]string{}
		}
		w.dirs[dir] = really
	}
	return path.Join(really, name)
}

// wayOf is the path of a directory as the kernel knows it.
func wayOf(root *os.Root, dir string) (string, error) {
	f, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// settle makes a file what it shall be: one that holds this already is not written
// anew, any other is replaced.
func (a *application) settle(p string, c content) error {
	size, want := c.size, io.Reader(io.NewSectionReader(c.blob, 0, c.size))
	if c.made {
		size, want = int64(len(c.text)), bytes.NewReader(c.text)
	}
	if a.holds(p, size, want) {
		return a.remode(p, c.mode)
	}
	return a.replace(p, c)
}

// replace puts a file in place of what is there, as a whole.
func (a *application) replace(p string, c content) error {
	if fi, err := a.root.Lstat(p); err == nil && fi.IsDir() {
		return inTheWay(p, "a directory", "a file")
	}
	name := underway(p)
	_ = a.root.Remove(name)
	dst, err := a.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &Failure{Reason: fleet.ReasonPrepareFailed, Err: err, Message: fmt.Sprintf(
			"%s is to be changed in the static directory, and the agent may not write to its directory: give it the permission (chmod u+w), or protect the file (protectedPaths)", p)}
	case errors.Is(err, fs.ErrExist):
		return &Failure{Reason: fleet.ReasonPrepareFailed, Err: err, Message: fmt.Sprintf(
			"%s is in the way of a file that is being written in the static directory: remove it", name)}
	case err != nil:
		return err
	}
	err = errors.Join(a.copier.fill(dst, c), dst.Chmod(c.mode))
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

// underway is what a file is called before it is whole. A name as long as a
// filesystem takes leaves no room for more, so it is not made of the file's own.
func underway(p string) string {
	sum := sha256.Sum256([]byte(p))
	return path.Join(path.Dir(p), ".orrery-new-"+hex.EncodeToString(sum[:12]))
}

// openKept opens a file a static directory was left with. It is nil for whatever is no
// plain file: a server may have left a pipe there, which nobody writes to, or a link,
// which leads to nothing, or would be replaced by what it leads to.
func (a *application) openKept(p string) (*os.File, fs.FileInfo, error) {
	// Looked at first, because opening alone does something to a device.
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

// holds reports whether a plain file of a static directory has exactly this content.
// What is known by another name too does not count: it may be written to by that.
func (a *application) holds(p string, size int64, want io.Reader) bool {
	f, fi, err := a.openKept(p)
	if err != nil || f == nil {
		return false
	}
	defer f.Close()
	return fi.Size() == size && links(fi) == 1 && same(f, want)
}

// remode gives a kept file the mode its template says.
func (a *application) remode(p string, mode fs.FileMode) error {
	if fi, err := a.root.Lstat(p); err != nil || fi.Mode() == mode {
		return err
	}
	return a.root.Chmod(p, mode)
}

// inTheWay refuses a static directory in which something else stands where the
// template has a file or a directory: it may be a world, and nobody else's copy is there.
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

// same reports whether two readers give the same bytes to the end.
func same(a, b io.Reader) bool {
	x, y := make([]byte, compareBuffer), make([]byte, compareBuffer)
	for {
		n, errX := io.ReadFull(a, x)
		m, errY := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) || !ended(errX) || !ended(errY) {
			return false
		}
		if errX != nil { // and so errY, for as many bytes came of both
			return true
		}
	}
}

// ended reports whether a read went well or met the end.
func ended(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
