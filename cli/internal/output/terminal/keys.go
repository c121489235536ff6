package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"
)

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
