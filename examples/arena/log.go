package arena

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// logger writes the classic format, "[HH:MM:SS INFO]: …", each line with one write. It
// writes info to out and errors to err. It ignores write errors, because a server without a
// console should continue.
type logger struct {
	now func() time.Time

	mu       sync.Mutex // serializes lines
	out, err io.Writer
}

func (l *logger) info(format string, args ...any)  { l.write(l.out, "INFO", format, args) }
func (l *logger) error(format string, args ...any) { l.write(l.err, "ERROR", format, args) }

func (l *logger) write(w io.Writer, level, format string, args []any) {
	line := fmt.Sprintf("[%s %s]: %s\n", l.now().Format("15:04:05"), level, fmt.Sprintf(format, args...))
	l.mu.Lock()
	defer l.mu.Unlock()
	io.WriteString(w, line)
}
