package reports

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Limits on the console output kept for a crash.
const (
	// MaxCrashLines is the number of lines in a CrashTail.
	MaxCrashLines = 500
	// MaxCrashBytes bounds their total size before compression.
	MaxCrashBytes = 64 << 10
	// maxCrashLine bounds one line, in bytes.
	maxCrashLine = 4 << 10

	// MaxLastLines is the number of lines in the Crash record itself.
	MaxLastLines = 20
	// MaxLastBytes bounds their total size.
	MaxLastBytes = 4 << 10
	// maxLastLine bounds one line, in bytes, so that several lines fit.
	maxLastLine = 512
)

// CrashTail is the end of a crashed run's output. It is written in the same transaction as its
// Crash and never changes. It is a separate record so that views of all crashes stay small.
type CrashTail struct {
	record.Rev
	ID string `json:"id"`
	// Text holds the lines, each with a newline, compressed with gzip.
	Text []byte `json:"text"`
	// Truncated is true if earlier output was dropped.
	Truncated bool `json:"truncated,omitempty"`
}

// NewCrashTail keeps the last of the given lines (oldest first). truncated says that lines before
// them were already dropped.
func NewCrashTail(id string, lines []string, truncated bool) CrashTail {
	from := lastOf(lines, MaxCrashLines, MaxCrashBytes, maxCrashLine)
	var text bytes.Buffer
	w := gzip.NewWriter(&text) // writing to a buffer cannot fail
	for _, l := range lines[from:] {
		_, _ = io.WriteString(w, clipLine(strings.ReplaceAll(l, "\n", " "), maxCrashLine)+"\n")
	}
	_ = w.Close()
	return CrashTail{ID: id, Text: text.Bytes(), Truncated: truncated || from > 0}
}

// LastLines returns the last lines as Crash.Last keeps them, nil if there are none.
func LastLines(lines []string) []string {
	var out []string
	for _, l := range lines[max(0, len(lines)-MaxLastLines):] {
		out = append(out, clipLine(strings.ToValidUTF8(l, "\uFFFD"), maxLastLine))
	}
	return out[lastOf(out, MaxLastLines, MaxLastBytes, maxLastLine):]
}

// lastOf returns the index of the first line to keep, so that the lines from there, each clipped
// and with a newline, stay within the bounds.
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

// clipLine shortens a line to limit bytes without splitting a character.
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

// Lines returns the kept lines, oldest first. The error is Internal if the record is damaged.
func (t *CrashTail) Lines() ([]string, error) {
	const op = "fleet.CrashTail"
	r, err := gzip.NewReader(bytes.NewReader(t.Text))
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, op, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxCrashBytes))
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, op, err)
	}
	if len(text) == 0 {
		return []string{}, nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}
