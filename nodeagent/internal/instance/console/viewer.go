package console

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// MaxLag is how many bytes a live viewer may fall behind before it skips to the end.
	MaxLag = 1 << 20
	// resumeBytes is how many bytes before the end such a viewer continues.
	resumeBytes = 64 << 10
	// maxFrame bounds the data of a frame: a part of a long line, and the bytes that show whether
	// a character continues after it.
	maxFrame = MaxLine + utf8.UTFMax
)

// Viewer reads a log from an offset while it grows. It gets everything that existed when it
// started, at its own speed. Of later output it may miss parts if it is too slow. It is not
// safe for concurrent use. The caller closes it.
type Viewer struct {
	path string
	file source
	pos  int64
	// promised is the offset up to which nothing is skipped.
	promised int64
	begun    bool
}

// NewViewer returns a viewer that begins at an offset. One after the end is moved to the end.
func NewViewer(path string, offset int64) *Viewer { return &Viewer{path: path, pos: max(offset, 0)} }

// Close releases the file.
func (v *Viewer) Close() {
	if v.file != nil {
		_ = v.file.Close()
	}
}

// Live reports whether the viewer has read everything up to promised.
func (v *Viewer) Live() bool { return v.begun && v.pos >= v.promised }

// Next returns the next frame; it is empty if there is no output now. An unfinished line is
// returned only if last says that nothing follows.
func (v *Viewer) Next(last bool) (client.Frame, error) {
	size, err := v.open()
	if err != nil || v.file == nil || v.pos >= size {
		return client.Frame{From: v.pos, Next: v.pos}, err
	}
	if p, gone := v.gone(size); gone {
		return p, nil
	}
	if v.Live() && size-v.pos > MaxLag {
		return v.skip(size)
	}
	p, err := v.read(size, last)
	if err != nil {
		return client.Frame{}, err
	}
	if p, gone := v.gone(size); gone { // discarded meanwhile: the data may be zeros
		return p, nil
	}
	v.pos = p.Next
	return p, nil
}

// open opens the log if it exists and returns its size.
func (v *Viewer) open() (size int64, err error) {
	if v.file == nil {
		f, err := open(v.path)
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, errs.WrapAs(errs.Unavailable, "console.Viewer", err)
		}
		v.file = f
	}
	size, err = v.file.size()
	if err != nil {
		return 0, errs.WrapAs(errs.Unavailable, "console.Viewer", err)
	}
	if !v.begun {
		v.begun, v.promised = true, size
		v.pos = min(v.pos, size)
	}
	return size, nil
}

// gone skips what was discarded.
func (v *Viewer) gone(size int64) (client.Frame, bool) {
	data := v.file.data(v.pos)
	if data <= v.pos {
		return client.Frame{}, false
	}
	p := client.Frame{From: v.pos, Next: wholeFrom(v.file, min(data, size), size), Skipped: &client.Skipped{}}
	v.pos = p.Next
	return p, true
}

// skip moves a slow viewer near the end and counts the skipped lines.
func (v *Viewer) skip(size int64) (client.Frame, error) {
	to := wholeFrom(v.file, size-resumeBytes, size)
	p := client.Frame{From: v.pos, Next: to, Skipped: &client.Skipped{}}
	buf := make([]byte, block)
	for at := v.pos; at < to; {
		n, err := v.file.ReadAt(buf[:min(block, to-at)], at)
		p.Skipped.Lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
		if at += int64(n); err != nil {
			return client.Frame{}, errs.WrapAs(errs.Unavailable, "console.Viewer", err)
		}
	}
	if v.file.data(v.pos) > v.pos { // discarded meanwhile: the count is wrong
		p.Skipped.Lines = 0
	}
	v.pos = to
	return p, nil
}

// read reads the frame at the position.
func (v *Viewer) read(size int64, last bool) (client.Frame, error) {
	data := make([]byte, min(maxFrame, size-v.pos))
	n, err := v.file.ReadAt(data, v.pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return client.Frame{}, errs.WrapAs(errs.Unavailable, "console.Viewer", err)
	}
	data = data[:n]
	end := bytes.LastIndexByte(data, '\n') + 1
	if end == 0 && (len(data) > MaxLine || last) {
		end = len(cut(data))
	}
	if end < len(data) && last && v.pos+int64(n) >= size {
		end = len(data)
	}
	return client.Frame{Data: data[:end], From: v.pos, Next: v.pos + int64(end)}, nil
}
