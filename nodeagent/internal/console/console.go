// Package console reads an instance's output: an append-only file whose byte
// offset is the cursor.
//
//	server ──▶ log file ──▶ Viewer (a cursor) ──▶ somebody who looks
//	   kernel's news ──▶ Follower ──┘ wakes them; notes times; gives the head back
//
// Invariants:
//
//   - Reading costs what is returned, not what the file holds: the end is read
//     backwards in blocks. Space given back at the head (a hole) is skipped.
//   - Nobody who looks holds up the server, the agent or another viewer: the file is
//     the only buffer. Who cannot follow is told how much was left out.
//   - Offsets stay valid for as long as the log exists, whatever was given back.
package console

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// MaxLines is the most a page holds.
	MaxLines = 100_000
	// MaxBytes is the most one call reads.
	MaxBytes = 16 << 20
	// MaxLine is the most a page holds of one line, in bytes; Read returns all of it.
	MaxLine = 64 << 10
	block   = 64 << 10
)

// Line is one line of output with the offset of its first byte.
type Line struct {
	Offset int64
	// Text is the line as it was written, up to MaxLine, without its newline and a
	// trailing CR; ANSI sequences stay.
	Text string
	// At is when it was written, to a second; zero when nobody was there to see.
	At time.Time
}

// Start is the offset at which the last n lines begin; with none of them, the end.
func Start(path string, n int) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, errs.As(errs.Unavailable, "console.Start", err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || n <= 0 {
		return size, errs.As(errs.Unavailable, "console.Start", err)
	}
	from, err := tailOffset(f, size, n)
	return from, errs.As(errs.Unavailable, "console.Start", err)
}

// tailOffset finds where the last n lines begin, reading backwards no further
// than the file's first data and MaxBytes.
func tailOffset(f *os.File, size int64, n int) (int64, error) {
	head := firstData(f)
	floor := max(head, size-MaxBytes)
	buf := make([]byte, block)
	end, newlines := size, 0
	for end > floor {
		start := max(floor, end-block)
		part := buf[:end-start]
		if _, err := f.ReadAt(part, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := len(part) - 1; i >= 0; i-- {
			if part[i] != '\n' || start+int64(i) == size-1 { // the last line's own end
				continue
			}
			if newlines++; newlines == n {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	if floor > 0 { // in the middle of a line, as likely as not
		return nextLine(f, floor, buf), nil
	}
	return floor, nil
}

// nextLine is where the first line after an offset begins, if it does within a
// block: no bound may cut a line in half.
func nextLine(f *os.File, from int64, buf []byte) int64 {
	n, _ := f.ReadAt(buf, from)
	if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
		return from + int64(i) + 1
	}
	return from
}

// firstData is the offset of the first byte that was not given back.
func firstData(f *os.File) int64 {
	off, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // nothing but holes: the data begins where the file ends
		off, err = unix.Seek(int(f.Fd()), 0, unix.SEEK_END)
	}
	if err != nil { // a filesystem that cannot tell
		return 0
	}
	return off
}

func split(text []byte, from int64) []Line {
	lines := []Line{}
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		lines = append(lines, Line{Offset: from, Text: strings.TrimSuffix(string(cut(line)), "\r")})
		from += int64(len(text) - len(rest))
		text = rest
	}
	return lines
}

// cut shortens a line that is too long, between two characters.
func cut(line []byte) []byte {
	if len(line) <= MaxLine {
		return line
	}
	end := MaxLine
	for end > MaxLine-utf8.UTFMax && !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end]
}

// Read returns at most limit bytes from an offset on, and the offset after them.
// An offset before the first data, or past the end, is moved to it. No file yet is no data.
func Read(path string, offset int64, limit int) (data []byte, next int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, errs.As(errs.Unavailable, "console.Read", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, errs.As(errs.Unavailable, "console.Read", err)
	}
	offset = min(max(offset, firstData(f)), fi.Size())
	data = make([]byte, min(int64(limit), MaxBytes, fi.Size()-offset))
	n, err := f.ReadAt(data, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, errs.As(errs.Unavailable, "console.Read", err)
	}
	return data[:n], offset + int64(n), nil
}
