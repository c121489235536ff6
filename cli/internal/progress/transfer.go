package progress

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
)

// redrawAfter is the least time between two drawings.
const redrawAfter = 100 * time.Millisecond

// Transfer shows on a terminal how many bytes are sent or received.
type Transfer struct {
	a     *app.App
	label string
	// total is 0 if it is not known.
	total int64
	done  atomic.Int64
	line  *Line
	drawn time.Time
}

// NewTransfer returns a Transfer of total bytes; 0 means that the number is not known.
func NewTransfer(a *app.App, label string, total int64) *Transfer {
	return &Transfer{a: a, label: label, total: total, line: NewLine(a)}
}

// Reader counts what is read from r, and closes it. done is what was transferred before: a transfer that begins again
// begins there.
func (t *Transfer) Reader(r io.ReadCloser, done int64) io.ReadCloser {
	t.done.Store(done)
	return &countedReader{r, t}
}

type countedReader struct {
	io.ReadCloser
	t *Transfer
}

// Read implements io.Reader.
func (c *countedReader) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.t.done.Add(int64(n))
	if c.t.a.Interactive && time.Since(c.t.drawn) >= redrawAfter {
		c.t.drawn = time.Now()
		c.t.draw()
	}
	return n, err
}

func (t *Transfer) draw() {
	done := t.done.Load()
	if t.total == 0 {
		t.line.Show(t.label + " " + kinds.Size(done))
		return
	}
	done = min(done, t.total)
	t.line.Show(fmt.Sprintf("%s %s %s of %s", t.label, Bar(done, t.total), kinds.Size(done), kinds.Size(t.total)))
}

// End removes the line.
func (t *Transfer) End() { t.line.Clear() }
