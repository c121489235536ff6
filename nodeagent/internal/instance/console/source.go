package console

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// source is an open log. Tests replace it.
type source interface {
	io.ReaderAt
	io.Closer
	// size is the size of the log in bytes, including what was discarded.
	size() (int64, error)
	// data is the offset of the first byte at or after from that was not discarded, or the
	// log's end.
	data(from int64) int64
}

// file is a log on the disk.
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
	if errors.Is(err, unix.ENXIO) { // only a hole follows
		off, err = unix.Seek(int(f.Fd()), 0, unix.SEEK_END)
	}
	if err != nil { // the filesystem does not support SEEK_DATA
		return from
	}
	return max(off, from)
}

// lineFrom is the offset of the first line that begins at or after from, or end if none does.
// Within a line longer than maxPageLine it is from itself.
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
		if at += int64(n); at-from >= maxPageLine || err != nil && at < end {
			return from
		}
	}
	return end
}

// wholeFrom is lineFrom for a log whose head was discarded. If no line begins before end, it
// is head, within a line.
func wholeFrom(s io.ReaderAt, head, end int64) int64 {
	if from := lineFrom(s, head, end); from < end {
		return from
	}
	return head
}
