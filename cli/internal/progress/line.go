package progress

import (
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/output"
)

// Line shows how far something is, on standard error: one line that is rewritten on a terminal, a line for each
// change otherwise.
type Line struct {
	app  *app.App
	last string
}

// NewLine returns an empty Line.
func NewLine(a *app.App) *Line { return &Line{app: a} }

// Show replaces the text. Control characters are left out.
func (l *Line) Show(text string) {
	text = output.OneLine(text)
	if text == l.last {
		return
	}
	l.last = text
	if !l.rewrites() {
		l.app.Notef("%s", text)
		return
	}
	fmt.Fprint(l.app.Err, "\r"+output.Cut(text, l.width())+"\x1b[K")
}

// Clear removes the text from a terminal.
func (l *Line) Clear() {
	if l.rewrites() && l.last != "" {
		fmt.Fprint(l.app.Err, "\r\x1b[K")
	}
	l.last = ""
}

func (l *Line) rewrites() bool { return l.app.Interactive && l.app.Env("TERM") != "dumb" }

// defaultWidth is that of a terminal whose width is not known.
const defaultWidth = 80

// width leaves the last column free, because some terminals break the line there.
func (l *Line) width() int {
	if l.app.Width > 1 {
		return l.app.Width - 1
	}
	return defaultWidth - 1
}
