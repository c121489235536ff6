package console

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// source is a log that is read: a file.
type source interface {
	io.ReaderAt
	io.Closer
	// size is how far the log has come, in bytes.
	size() (int64, error)
	// data is the offset of the first byte from an offset on that was not given back; the
	// log's end when there is none.
	data(from int64) int64
}

// file is a log's file.
type file struct{ *os.File }

func open(path string) (source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

func (f file) size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (f file) data(from int64) int64 {
	off, err := unix.Seek(int(f.Fd()), from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // nothing but holes: the data begins where the file ends
		off, err = unix.Seek(int(f.Fd()), 0, unix.SEEK_END)
	}
	if err != nil { // a filesystem that cannot tell
		return from
	}
	return max(off, from)
}

// lineFrom is where the first line begins that begins at an offset or after it; end
// when none does before it. Within a line longer than longest it is the offset itself.
func lineFrom(s io.ReaderAt, from, end int64) int64 {
	if from <= 0 || from >= end {
		return min(max(from, 0), end)
	}
	buf := make([]byte, block)
	for at := from - 1; at < end; {
		n, err := s.ReadAt(buf[:min(block, end-at)], at)
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return at + int64(i) + 1
		}
		if at += int64(n); at-from >= longest || err != nil && at < end {
			return from
		}
	}
	return end
}

// wholeFrom is lineFrom for what is left of a log whose head was given back: where it
// holds no whole line it begins with the rest of one.
func wholeFrom(s io.ReaderAt, head, end int64) int64 {
	if from := lineFrom(s, head, end); from < end {
		return from
	}
	return head
}
