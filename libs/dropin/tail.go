package dropin

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
)

const (
	// told is the number of bytes kept of the standard error output.
	told = 1 << 10
	// shortest is the minimum length of a secret's line that is masked. Masking every "a" would
	// make the output unreadable.
	shortest = 3
	mask     = "***"
)

// tail keeps the last bytes written, and enough before them to recognize a secret that starts
// there.
type tail struct {
	secrets [][]byte
	keep    int
	held    []byte
	cut     bool
}

func newTail(secrets []string) *tail {
	t := &tail{}
	for _, s := range secrets {
		for line := range strings.Lines(s) { // a program may print one line of a key
			if line = strings.TrimSpace(line); len(line) >= shortest {
				t.secrets = append(t.secrets, []byte(line))
				t.keep = max(t.keep, len(line))
			}
		}
	}
	return t
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.held = append(t.held, p...)
	if most := told + t.keep; len(t.held) > most {
		t.held, t.cut = slices.Clone(t.held[len(t.held)-most:]), true
	}
	return len(p), nil
}

// text returns the kept output as one line of valid UTF-8 without secrets.
func (t *tail) text() string {
	hidden := make([]bool, len(t.held))
	for _, secret := range t.secrets {
		for at := 0; ; at++ {
			found := bytes.Index(t.held[at:], secret)
			if found < 0 {
				break
			}
			at += found
			for i := range secret {
				hidden[at+i] = true
			}
		}
	}
	from := 0
	if t.cut {
		from = t.keep // the bytes before may be the end of a secret
	}
	var b strings.Builder
	for i := from; i < len(t.held); i++ {
		switch {
		case !hidden[i]:
			b.WriteByte(t.held[i])
		case i == from || !hidden[i-1]:
			b.WriteString(mask)
		}
	}
	return oneLine(strings.ToValidUTF8(b.String(), "?"))
}

// oneLine joins lines and removes control characters.
func oneLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, line))
		if line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " | ")
}
