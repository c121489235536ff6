package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"
)

// homeAndEnd has what tmux, screen, the Linux console and others send for Home and End, and what the editor
// knows instead.
var homeAndEnd = strings.NewReplacer(
	"\x1b[1~", "\x1b[H", "\x1b[7~", "\x1b[H", "\x1bOH", "\x1b[H",
	"\x1b[4~", "\x1b[F", "\x1b[8~", "\x1b[F", "\x1bOF", "\x1b[F",
)

// keyReader reads keys as the editor knows them. A terminal sends a key as a whole.
type keyReader struct{ io.Reader }

// Read reads keys.
func (r keyReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	return copy(p, homeAndEnd.Replace(string(p[:n]))), err
}

// leaveKeys are q, Q, Ctrl-C, Ctrl-D and Escape.
var leaveKeys = []byte{'q', 'Q', 3, 4, 27}

// Viewer shows text on a terminal until a key ends it.
type Viewer struct {
	in      cancelreader.CancelReader
	out     io.Writer
	restore func() error
	done    chan struct{}
}

// NewViewer takes the terminal and calls leave when q, Escape, Ctrl-C or Ctrl-D is pressed. The caller closes the Viewer.
func NewViewer(in, out *os.File, leave func()) (*Viewer, error) {
	reader, err := cancelreader.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("cannot read the terminal: %w", err)
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot take the terminal: %w", err), reader.Close())
	}
	v := &Viewer{in: reader, out: out, done: make(chan struct{}), restore: func() error { return term.Restore(int(in.Fd()), state) }}
	go func() {
		defer close(v.done)
		defer leave()
		keys := make([]byte, 64)
		for {
			n, err := reader.Read(keys)
			if err != nil || bytes.ContainsAny(keys[:n], string(leaveKeys)) {
				return
			}
		}
	}()
	return v, nil
}

// Write prints text. Raw terminals need a carriage return before each line feed.
func (v *Viewer) Write(text []byte) (int, error) {
	_, err := v.out.Write(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
	return len(text), err
}

// Close gives the terminal back.
func (v *Viewer) Close() error {
	v.in.Cancel()
	<-v.done
	return errors.Join(v.restore(), v.in.Close())
}
