package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"
)

// leaveLine is the line that ends a session, like that of ssh.
const leaveLine = "~."

// prompt is shown before the line that is typed.
const prompt = "> "

// Editor reads lines from a terminal while other text is printed above them. Write may be called concurrently with
// ReadLine.
type Editor struct {
	terminal *term.Terminal
	in       cancelreader.CancelReader
	// restore gives the terminal back as it was.
	restore func() error
}

// terminalIO reads what is typed and writes to the terminal.
type terminalIO struct {
	io.Reader
	io.Writer
}

// NewEditor takes the terminal of in and out. The caller closes the Editor.
func NewEditor(in, out *os.File, history *History, words *Words) (*Editor, error) {
	reader, err := cancelreader.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("cannot read the terminal: %w", err)
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot take the terminal: %w", err), reader.Close())
	}
	e := &Editor{terminal: term.NewTerminal(terminalIO{keyReader{reader}, out}, prompt), in: reader}
	e.terminal.History = history
	e.terminal.AutoCompleteCallback = e.completion(history, words)
	resize := func() {
		if width, height, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
			_ = e.terminal.SetSize(width, height) // the next change of the size tries again
		}
	}
	resize()
	stop := onResize(resize)
	e.restore = func() error {
		stop()
		return term.Restore(int(in.Fd()), state)
	}
	return e, nil
}

// completion returns the function that is called for each key.
func (e *Editor) completion(history *History, words *Words) func(string, int, rune) (string, int, bool) {
	return func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		completed, choices := words.Complete(line[:pos], history)
		if len(choices) > 0 {
			_, _ = e.Write([]byte(Clean(strings.Join(choices, "  ")) + "\n")) // the next write fails too
		}
		return completed + line[pos:], len(completed), true
	}
}

// ReadLine returns a line that was typed. The error is io.EOF after Ctrl-D or Ctrl-C, and after ~. on a line of its own.
func (e *Editor) ReadLine() (string, error) {
	line, err := e.terminal.ReadLine()
	if errors.Is(err, cancelreader.ErrCanceled) || err == nil && line == leaveLine {
		err = io.EOF
	}
	return line, err
}

// Write prints whole lines above the line that is typed.
func (e *Editor) Write(lines []byte) (int, error) { return e.terminal.Write(lines) }

// Cancel makes ReadLine return io.EOF.
func (e *Editor) Cancel() { e.in.Cancel() }

// Close gives the terminal back. ReadLine must have returned.
func (e *Editor) Close() error { return errors.Join(e.restore(), e.in.Close()) }
