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

	// MaxLastLines is the number of lines in the record of the crash itself.
	MaxLastLines = 20
	// MaxLastBytes bounds them together.
	MaxLastBytes = 4 << 10
	// maxLastLine bounds one of them, so that there is room for others.
	maxLastLine = 512
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
	from := lastOf(lines, MaxCrashLines, MaxCrashBytes, maxCrashLine)
	var text bytes.Buffer
	w := gzip.NewWriter(&text) // neither it nor the buffer ever fails
	for _, l := range lines[from:] {
		_, _ = io.WriteString(w, clipLine(strings.ReplaceAll(l, "\n", " "), maxCrashLine)+"\n")
	}
	_ = w.Close()
	return CrashTail{ID: id, Text: text.Bytes(), Truncated: truncated || from > 0}
}

// LastLines are the last of some lines, as a Crash keeps them; nil when there are none.
func LastLines(lines []string) []string {
	var out []string
	for _, l := range lines[max(0, len(lines)-MaxLastLines):] {
		out = append(out, clipLine(strings.ToValidUTF8(l, "\uFFFD"), maxLastLine))
	}
	return out[lastOf(out, MaxLastLines, MaxLastBytes, maxLastLine):]
}

// lastOf is from which of some lines on they stay within bounds, each clipped and with a newline.
func lastOf(lines []string, maxLines, maxBytes, maxLine int) int {
	from, size := len(lines), 0
	for from > 0 && len(lines)-from < maxLines {
		next := min(len(lines[from-1]), maxLine) + 1
		if size+next > maxBytes {
			break
		}
		size += next
		from--
	}
	return from
}

// clipLine shortens a line that is too long, between two characters.
func clipLine(l string, limit int) string {
	if len(l) <= limit {
		return l
	}
	end := limit
	for end > limit-utf8.UTFMax && !utf8.RuneStart(l[end]) {
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
