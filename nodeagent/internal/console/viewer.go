package console

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// MaxLag is how far a viewer who was up to date may fall behind, in bytes, before
	// it is taken on to the present.
	MaxLag = 1 << 20
	// resumeAt is how much of the present such a viewer is shown.
	resumeAt = 64 << 10
	// maxPiece is the most a viewer gets at a time: a part of a long line, and what tells
	// whether a character goes on after it.
	maxPiece = MaxLine + utf8.UTFMax
)

// Piece is what a viewer gets: output, or the note that some was left out.
type Piece struct {
	// Data begins at From and ends before Next. It is whole lines, but for one that is
	// longer than MaxLine, which comes in parts, and the last of a server that ended.
	Data []byte
	// From and Next are offsets.
	From, Next int64
	// Skipped is true when From to Next was left out.
	Skipped bool
	// Lines is how many lines were; 0 when they are no longer kept, and not known.
	Lines int64
}

// Viewer reads a log from an offset on while it grows. It gets all of what was there
// when it came, at its own pace; of what comes later, what it can keep up with. It is
// not safe for concurrent use; close it.
type Viewer struct {
	path string
	file source
	pos  int64
	// promised is up to where nothing is left out.
	promised int64
	begun    bool
}

// NewViewer makes a viewer that begins at an offset; one past the end is moved to it.
func NewViewer(path string, offset int64) *Viewer { return &Viewer{path: path, pos: max(offset, 0)} }

// Close lets go of the file.
func (v *Viewer) Close() {
	if v.file != nil {
		_ = v.file.Close()
	}
}

// Live reports whether the viewer has all that was promised to it.
func (v *Viewer) Live() bool { return v.begun && v.pos >= v.promised }

// Next is the next piece; one without bytes when there is none now. An unfinished
// line is a piece only when last says that nothing follows.
func (v *Viewer) Next(last bool) (Piece, error) {
	size, err := v.open()
	if err != nil || v.file == nil || v.pos >= size {
		return Piece{From: v.pos, Next: v.pos}, err
	}
	if p, gone := v.gone(size); gone {
		return p, nil
	}
	if v.Live() && size-v.pos > MaxLag {
		return v.skip(size)
	}
	p, err := v.read(size, last)
	if err != nil {
		return Piece{}, err
	}
	if p, gone := v.gone(size); gone { // meanwhile: what was read may be zeros
		return p, nil
	}
	v.pos = p.Next
	return p, nil
}

// open opens the log when it exists, and tells its size.
func (v *Viewer) open() (size int64, err error) {
	if v.file == nil {
		f, err := open(v.path)
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, errs.As(errs.Unavailable, "console.Viewer", err)
		}
		v.file = f
	}
	size, err = v.file.size()
	if err != nil {
		return 0, errs.As(errs.Unavailable, "console.Viewer", err)
	}
	if !v.begun {
		v.begun, v.promised = true, size
		v.pos = min(v.pos, size)
	}
	return size, nil
}

// gone takes the viewer past what was given back.
func (v *Viewer) gone(size int64) (Piece, bool) {
	data := v.file.data(v.pos)
	if data <= v.pos {
		return Piece{}, false
	}
	p := Piece{From: v.pos, Next: wholeFrom(v.file, min(data, size), size), Skipped: true}
	v.pos = p.Next
	return p, true
}

// skip takes a viewer that fell behind to the present, and counts what it missed.
func (v *Viewer) skip(size int64) (Piece, error) {
	to := wholeFrom(v.file, size-resumeAt, size)
	p := Piece{From: v.pos, Next: to, Skipped: true}
	buf := make([]byte, block)
	for at := v.pos; at < to; {
		n, err := v.file.ReadAt(buf[:min(block, to-at)], at)
		p.Lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
		if at += int64(n); err != nil {
			return Piece{}, errs.As(errs.Unavailable, "console.Viewer", err)
		}
	}
	if v.file.data(v.pos) > v.pos { // meanwhile: what was counted was no longer there
		p.Lines = 0
	}
	v.pos = to
	return p, nil
}

// read is a piece from the position on.
func (v *Viewer) read(size int64, last bool) (Piece, error) {
	data := make([]byte, min(maxPiece, size-v.pos))
	n, err := v.file.ReadAt(data, v.pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return Piece{}, errs.As(errs.Unavailable, "console.Viewer", err)
	}
	data = data[:n]
	end := bytes.LastIndexByte(data, '\n') + 1
	if end == 0 && (len(data) > MaxLine || last) {
		end = len(cut(data))
	}
	if end < len(data) && last && v.pos+int64(n) >= size {
		end = len(data)
	}
	return Piece{Data: data[:end], From: v.pos, Next: v.pos + int64(end)}, nil
}
