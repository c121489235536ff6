package fleet

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// What is kept of the console of a run that crashed.
const (
	// MaxCrashLines is the number of lines at most, the last ones.
	MaxCrashLines = 500
	// MaxCrashBytes bounds them together, before they are compressed.
	MaxCrashBytes = 64 << 10
	// maxCrashLine bounds one of them.
	maxCrashLine = 4 << 10
)

// CrashTail is what a run printed last. It is written in one transaction with its Crash
// and never changed; it has a record of its own so that a view of all crashes does not
// hold it.
type CrashTail struct {
	Rev
	ID string `json:"id"`
	// Text holds the lines, each with its newline, compressed by gzip.
	Text []byte `json:"text"`
	// Truncated is true when more was printed than is kept.
	Truncated bool `json:"truncated,omitempty"`
}

// NewCrashTail keeps the last of some lines, oldest first. truncated says that there
// were others before them.
func NewCrashTail(id string, lines []string, truncated bool) CrashTail {
	from, size := len(lines), 0
	for from > 0 && len(lines)-from < MaxCrashLines {
		next := min(len(lines[from-1]), maxCrashLine) + 1
		if size+next > MaxCrashBytes {
			break
		}
		size += next
		from--
	}
	var text bytes.Buffer
	w := gzip.NewWriter(&text) // neither it nor the buffer ever fails
	for _, l := range lines[from:] {
		_, _ = io.WriteString(w, clipLine(strings.ReplaceAll(l, "\n", " "))+"\n")
	}
	_ = w.Close()
	return CrashTail{ID: id, Text: text.Bytes(), Truncated: truncated || from > 0}
}

// clipLine shortens a line that is too long, between two characters.
func clipLine(l string) string {
	if len(l) <= maxCrashLine {
		return l
	}
	end := maxCrashLine
	for end > maxCrashLine-utf8.UTFMax && !utf8.RuneStart(l[end]) {
		end--
	}
	return l[:end]
}

// Lines are what is kept, oldest first. Internal when the record is damaged.
func (t *CrashTail) Lines() ([]string, error) {
	const op = "fleet.CrashTail"
	r, err := gzip.NewReader(bytes.NewReader(t.Text))
	if err != nil {
		return nil, errs.As(errs.Internal, op, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxCrashBytes))
	if err != nil {
		return nil, errs.As(errs.Internal, op, err)
	}
	if len(text) == 0 {
		return []string{}, nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}
