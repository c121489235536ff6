package content

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/progress"
)

// redrawAfter is the least time between two drawings.
const redrawAfter = 100 * time.Millisecond

// transfer shows on a terminal how many bytes are sent or received.
type transfer struct {
	a     *app.App
	label string
	// total is 0 if it is not known.
	total int64
	done  atomic.Int64
	line  *progress.Line
	drawn time.Time
}

func newTransfer(a *app.App, label string, total int64) *transfer {
	return &transfer{a: a, label: label, total: total, line: progress.NewLine(a)}
}

// reader counts what is read from r. A transfer that begins again begins at done.
func (t *transfer) reader(r io.Reader, done int64) io.Reader {
	t.done.Store(done)
	return &countedReader{r, t}
}

type countedReader struct {
	r io.Reader
	t *transfer
}

// Read implements io.Reader.
func (c *countedReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.t.done.Add(int64(n))
	if c.t.a.Interactive && time.Since(c.t.drawn) >= redrawAfter {
		c.t.drawn = time.Now()
		c.t.draw()
	}
	return n, err
}

func (t *transfer) draw() {
	done := t.done.Load()
	if t.total == 0 {
		t.line.Show(t.label + " " + kinds.Size(done))
		return
	}
	done = min(done, t.total)
	t.line.Show(fmt.Sprintf("%s %s %s of %s", t.label, bar(done, t.total), kinds.Size(done), kinds.Size(t.total)))
}

// end removes the line.
func (t *transfer) end() { t.line.Clear() }

// barWidth is the length of a bar without its brackets.
const barWidth = 20

// bar returns a bar such as [#####---------------] for done of total, which is not 0.
func bar(done, total int64) string {
	filled := int(done * barWidth / total)
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", barWidth-filled) + "]"
}
