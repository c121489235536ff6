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
	// copyBuffer is the buffer size of copies in user space, in bytes.
	copyBuffer = 256 << 10
	// maxCopyCall limits one call of copy_file_range, so that a canceled build ends soon.
	maxCopyCall = 64 << 20
)

// content is the content of a file to write: a blob, or generated text.
type body struct {
	blob *os.File
	size int64
	mode fs.FileMode
	// text is the content if generated is true.
	text      []byte
	generated bool
}

// copier writes the files of one directory. It remembers which ways of copying the filesystem
// does not support: cloning and copy_file_range.
type copier struct{ noClone, noCopyRange atomic.Bool }

// fill writes the content to an empty file.
func (c *copier) fill(dst *os.File, from body) error {
	if from.generated {
		_, err := dst.Write(from.text)
		return err
	}
	if _, err := from.blob.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if !c.noClone.Load() {
		err := unix.IoctlFileClone(int(dst.Fd()), int(from.blob.Fd()))
		if err == nil {
			return nil
		}
		if isUnsupported(err) {
			c.noClone.Store(true)
		}
	}
	if !c.noCopyRange.Load() {
		copied, err := copyRange(dst, from.blob)
		if err == nil || copied > 0 || !isUnsupported(err) {
			return pathError("copy to", dst, err)
		}
		c.noCopyRange.Store(true)
	}
	// The struct types hide ReadFrom and WriteTo, which would use copy_file_range again.
	_, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{from.blob}, make([]byte, copyBuffer))
	return err
}

// isUnsupported reports whether an error is permanent for this filesystem.
func isUnsupported(err error) bool {
	for _, e := range []error{unix.EOPNOTSUPP, unix.ENOTTY, unix.EXDEV, unix.ENOSYS, unix.EINVAL, unix.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// copyRange copies until EOF with copy_file_range.
func copyRange(dst, src *os.File) (copied int64, err error) {
	for {
		n, err := ignoringInterrupts(func() (int, error) {
			return unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, maxCopyCall, 0)
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
