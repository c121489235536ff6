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
	for {
		b, err := r.in.ReadByte()
		if err != nil {
			return err
		}
		second := r.afterCR && b == '\n' // of a line end whose CR ended the line
		r.afterCR = b == '\r'
		if second {
			continue
		}
		if r.size++; r.size > maxFrame {
			return errFrameTooLong
		}
		if b == '\n' || b == '\r' {
			break
		}
		r.line = append(r.line, b)
	}
	if !r.begun {
		r.begun = true
		r.line = bytes.TrimPrefix(r.line, []byte("\uFEFF"))
	}
	return nil
}

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
