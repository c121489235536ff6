package arena

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// logger writes the classic format, "[HH:MM:SS INFO]: …". A line is one write. Info
// goes to out, errors go to err. Writing errors are ignored: a server whose console
// is gone runs on.
type logger struct {
	now func() time.Time

	mu       sync.Mutex // keeps lines apart
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
