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
//   - What was read may have been given back meanwhile, and then is zeros: whether it was
//     is asked after it was read, and what was is told as left out, never shown.
package console

import (
	"errors"
	"io"
	"io/fs"
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// MaxLines is the most a page holds.
	MaxLines = 100_000
	// MaxBytes is how far back the last lines are looked for, and the most text a page holds.
	MaxBytes = 16 << 20
	// MaxRead is the most one Read returns, in bytes.
	MaxRead = 4 << 20
	// MaxLine is the most a viewer gets of one line at once, in bytes.
	MaxLine = 64 << 10
	// longest is the longest line a page holds as one, in bytes.
	longest = 4 << 20
	block   = 64 << 10
)

// Line is one line of output with the offset of its first byte.
type Line struct {
	Offset int64
	// Text is the line as it was written, without its newline and a trailing CR; ANSI
	// sequences stay.
	Text string
	// At is when it was written, to a second; zero when nobody was there to see.
	At time.Time
}

// Start is the offset at which the last n lines begin; with none of them, the end.
func Start(path string, n int) (int64, error) {
	s, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, errs.As(errs.Unavailable, "console.Start", err)
	}
	defer s.Close()
	size, err := s.size()
	if err != nil || n <= 0 {
		return size, errs.As(errs.Unavailable, "console.Start", err)
	}
	from, err := tailOffset(s, size, n)
	return from, errs.As(errs.Unavailable, "console.Start", err)
}

// tailOffset finds where the last n lines begin, reading backwards no further
// than the log's first data and MaxBytes.
func tailOffset(s source, size int64, n int) (int64, error) {
	floor := max(s.data(0), size-MaxBytes)
	buf := make([]byte, block)
	end, newlines := size, 0
	for end > floor {
		start := max(floor, end-block)
		part := buf[:end-start]
		if _, err := s.ReadAt(part, start); err != nil && !errors.Is(err, io.EOF) {
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
		return wholeFrom(s, floor, size), nil
	}
	return floor, nil
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

// Read returns at most limit bytes from an offset on, and the offset after them: no
// more than MaxRead, and so fewer than there are, perhaps. An offset before the first
// data, or past the end, is moved to it. No file yet is no data.
func Read(path string, offset int64, limit int) (data []byte, next int64, err error) {
	s, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, errs.As(errs.Unavailable, "console.Read", err)
	}
	defer s.Close()
	data, next, err = readFrom(s, offset, limit)
	return data, next, errs.As(errs.Unavailable, "console.Read", err)
}

func readFrom(s source, offset int64, limit int) (data []byte, next int64, err error) {
	size, err := s.size()
	if err != nil {
		return nil, 0, err
	}
	offset = min(max(offset, 0), size)
	for {
		offset = min(s.data(offset), size)
		data = make([]byte, min(int64(limit), MaxRead, size-offset))
		n, err := s.ReadAt(data, offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		if s.data(offset) == offset || offset == size {
			return data[:n], offset + int64(n), nil
		}
	}
}
