package orrery

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// maxFrame bounds a frame of a stream, in bytes.
const maxFrame = 1 << 20

// errFrameTooLong means that a frame has more than maxFrame bytes. It would be as long after
// reconnecting.
var errFrameTooLong = errors.New("a frame of the stream is longer than 1 MiB")

// frame is what a text/event-stream has up to an empty line: an event, a new ID without an event, or
// only a comment.
type frame struct {
	// event is the name of the event; "" means message.
	event string
	// id is the ID of the event, if hasID.
	id    string
	hasID bool
	// data has the lines of the event joined by newlines, if hasData. Without data there is no event.
	data    []byte
	hasData bool
}

// frameReader parses a text/event-stream.
type frameReader struct {
	in *bufio.Reader
	// line is the current line.
	line []byte
	// size is the number of bytes of the current frame.
	size int
	// begun is true after the first line. afterCR is true if the last line ended with a CR.
	begun, afterCR bool
}

// newFrameReader returns a frameReader of a stream from its beginning on.
func newFrameReader(in io.Reader) *frameReader { return &frameReader{in: bufio.NewReader(in)} }

// next returns the next frame. The error is io.EOF between two frames, io.ErrUnexpectedEOF in the middle
// of one, errFrameTooLong, or that of the underlying reader.
func (r *frameReader) next() (frame, error) {
	var f frame
	for r.size = 0; ; {
		err := r.readLine()
		switch {
		case errors.Is(err, io.EOF) && r.size > 0:
			return frame{}, io.ErrUnexpectedEOF
		case err != nil:
			return frame{}, err
		case len(r.line) == 0:
			return f, nil
		}
		f.set(r.line)
	}
}

// readLine reads a line, which ends with CR, LF or both. A line that the stream did not end is
// discarded.
func (r *frameReader) readLine() error {
	r.line = r.line[:0]
	for ended := false; !ended; {
		if _, err := r.in.Peek(1); err != nil {
			return err
		}
		chunk, _ := r.in.Peek(r.in.Buffered())
		if r.afterCR && chunk[0] == '\n' { // of a line end whose CR ended the line
			chunk = chunk[:1]
			r.afterCR = false
			r.discard(chunk)
			continue
		}
		r.afterCR = false
		n := bytes.IndexByte(chunk, '\n')
		if n >= 0 {
			chunk = chunk[:n+1]
		}
		if cr := bytes.IndexByte(chunk, '\r'); cr >= 0 {
			n, r.afterCR = cr, true
			chunk = chunk[:n+1]
		}
		if ended = n >= 0; !ended {
			n = len(chunk)
		}
		if r.size += len(chunk); r.size > maxFrame {
			return errFrameTooLong
		}
		r.line = append(r.line, chunk[:n]...)
		r.discard(chunk)
	}
	if !r.begun {
		r.begun = true
		r.line = bytes.TrimPrefix(r.line, []byte("\uFEFF"))
	}
	return nil
}

// discard removes bytes that were peeked at.
func (r *frameReader) discard(chunk []byte) { _, _ = r.in.Discard(len(chunk)) }

// set adds a line to the frame. Comments and unknown fields have no effect.
func (f *frame) set(line []byte) {
	field, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(field) {
	case "event":
		f.event = string(value)
	case "id":
		if id := string(value); !strings.Contains(id, "\x00") {
			f.id, f.hasID = id, true
		}
	case "data":
		if f.hasData {
			f.data = append(f.data, '\n')
		}
		f.data, f.hasData = append(f.data, value...), true
	}
}
