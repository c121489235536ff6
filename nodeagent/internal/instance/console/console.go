// Package console reads an instance's output: an append-only file whose byte offset is
// the cursor.
//
//	server ──▶ log file ──▶ Viewer (a cursor) ──▶ client
//	           inotify ──▶ Follower ──┘ wakes viewers, records times, limits the size
//
// Invariants:
//
//   - Reading costs as much as the returned part, however large the file is. The end
//     is read backwards in blocks. Discarded space at the beginning (a hole) is skipped.
//   - A client never blocks the server, the agent or another client: the file is the only
//     buffer. A client that is too slow skips output and learns how much.
//   - Offsets stay valid for the lifetime of the log.
//   - A part of the log may be discarded while it is read, and then reads as zeros. Readers
//     therefore check for a hole after reading and report the part as skipped.
package console

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// MaxLines bounds the lines of a page.
	MaxLines = 100_000
	// MaxBytes bounds the text of a page, and how far back Start searches.
	MaxBytes = 16 << 20
	// MaxRead bounds the result of Read, in bytes.
	MaxRead = 4 << 20
	// MaxLine bounds the part of a line that a viewer gets at once, in bytes.
	MaxLine = 64 << 10
	// maxPageLine bounds a line of a page, in bytes. A longer line is split.
	maxPageLine = 4 << 20
	block       = 64 << 10
)

// Start is the offset of the last n lines. For n 0 it is the end. Canceled if ctx ends.
func Start(ctx context.Context, path string, n int) (int64, error) {
	s, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, errs.WrapAs(errs.Unavailable, "console.Start", err)
	}
	defer s.Close()
	size, err := s.size()
	if err != nil {
		return 0, errs.WrapAs(errs.Unavailable, "console.Start", err)
	}
	from, err := startOf(ctx, s, size, n)
	return from, errs.Wrap("console.Start", err)
}

func startOf(ctx context.Context, s source, size int64, n int) (int64, error) {
	p := &Page{log: s, size: size}
	err := Query{Lines: n}.search(ctx, p, p.kept(), size)
	return p.Before, err
}

// cut shortens a line to MaxLine without splitting a character.
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

// Read returns at most limit bytes, but no more than MaxRead, from an offset on, and the
// offset after them. An offset before the first data or after the end is moved there. A
// missing file contains no data.
func Read(path string, offset int64, limit int) (data []byte, next int64, err error) {
	s, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, errs.WrapAs(errs.Unavailable, "console.Read", err)
	}
	defer s.Close()
	data, next, err = readFrom(s, offset, limit)
	return data, next, errs.WrapAs(errs.Unavailable, "console.Read", err)
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
