package live

import (
	"bufio"
	"hash/fnv"
	"regexp"
	"sync"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
)

// printBuffer is how many bytes are written at once at most.
const printBuffer = 64 << 10

// printer prints lines of one or several servers to standard output. It may be used concurrently.
type printer struct {
	colours, timestamps, prefixes bool
	// pattern selects lines; nil selects all.
	pattern *regexp.Regexp

	// mu guards the fields below.
	mu  sync.Mutex
	out *bufio.Writer
	// line and plain are memory for a line.
	line, plain []byte
	err         error
}

func newPrinter(a *app.App, o logsOptions) *printer {
	return &printer{
		colours: a.Style().Colour, timestamps: o.timestamps, prefixes: o.prefix, pattern: o.pattern,
		out: bufio.NewWriterSize(a.Out, printBuffer),
	}
}

// named prints the lines of one server.
type named struct {
	*printer
	prefix []byte
}

// prefixColours are the SGR parameters of the names before lines.
var prefixColours = []string{"36", "33", "32", "35", "34", "96", "93", "92", "95", "94"}

func (p *printer) named(name string) *named {
	if !p.prefixes {
		return &named{printer: p}
	}
	prefix := terminal.Clean(name)
	if p.colours {
		h := fnv.New32a()
		h.Write([]byte(name))
		prefix = "\x1b[" + prefixColours[h.Sum32()%uint32(len(prefixColours))] + "m" + prefix + "\x1b[0m"
	}
	return &named{p, []byte(prefix + "  ")}
}

// print prints a line that was written at a time, unless the pattern does not match. A zero time is unknown. The
// error is that of standard output.
func (n *named) print(at time.Time, line string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	if n.pattern != nil {
		if n.plain = terminal.AppendClean(n.plain[:0], line, false); !n.pattern.Match(n.plain) {
			return nil
		}
	}
	n.line = append(n.line[:0], n.prefix...)
	if n.timestamps {
		n.line = append(appendTime(n.line, at), ' ')
	}
	n.line = append(terminal.AppendClean(n.line, line, n.colours), '\n')
	_, n.err = n.out.Write(n.line)
	return n.err
}

// appendTime appends a time in the local zone, or as many spaces for the zero time.
func appendTime(dst []byte, at time.Time) []byte {
	const layout = time.DateTime
	if at.IsZero() {
		return append(dst, "                   "[:len(layout)]...)
	}
	return at.Local().AppendFormat(dst, layout)
}

// flush writes what is buffered.
func (p *printer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = p.out.Flush()
	}
	return p.err
}
