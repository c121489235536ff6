package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// copyBuffer is what is copied at once where the kernel does not do it by itself.
	copyBuffer = 256 << 10
	// copyAtOnce bounds one call to the kernel, so that a cancelled build ends soon.
	copyAtOnce = 64 << 20
)

// content is what a file shall hold: a blob, or the text that was made of it.
type content struct {
	blob *os.File
	size int64
	mode fs.FileMode
	// text is it where made is true.
	text []byte
	made bool
}

// copier fills the files of one directory. It finds out once whether the filesystem
// shares blocks between files and whether the kernel copies by itself.
type copier struct{ unshared, byHand atomic.Bool }

// fill writes the content to an empty file.
func (c *copier) fill(dst *os.File, from content) error {
	if from.made {
		_, err := dst.Write(from.text)
		return err
	}
	if _, err := from.blob.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if !c.unshared.Load() {
		err := unix.IoctlFileClone(int(dst.Fd()), int(from.blob.Fd()))
		if err == nil {
			return nil
		}
		if never(err) {
			c.unshared.Store(true)
		}
	}
	if !c.byHand.Load() {
		copied, err := copyRange(dst, from.blob)
		if err == nil || copied > 0 || !never(err) {
			return pathError("copy to", dst, err)
		}
		c.byHand.Store(true)
	}
	// Neither side gets to choose: it would be the kernel's copy again.
	_, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{from.blob}, make([]byte, copyBuffer))
	return err
}

// never reports whether a refusal is for good, so that the next file need not try.
func never(err error) bool {
	for _, e := range []error{unix.EOPNOTSUPP, unix.ENOTTY, unix.EXDEV, unix.ENOSYS, unix.EINVAL, unix.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// copyRange copies to the end within the kernel.
func copyRange(dst, src *os.File) (copied int64, err error) {
	for {
		n, err := ignoringInterrupts(func() (int, error) {
			return unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, copyAtOnce, 0)
		})
		if err != nil || n == 0 {
			return copied, err
		}
		copied += int64(n)
	}
}

func pathError(op string, f *os.File, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.Name(), Err: err}
}
