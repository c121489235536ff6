package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Values, their encodings and the lines of multi-line values are masked by their length in
// bytes: from Anywhere on at any position, from minMasked on only as a separate word. Shorter
// ones are not masked: they are in every text, and their absence would reveal them.
const (
	minMasked = 4
	Anywhere  = 8
)

// Mask hides values in texts. The zero Mask hides nothing.
type Mask struct {
	// byPrefix holds the texts to hide by their first bytes, the longest first.
	byPrefix map[[minMasked]byte][]string
	// longest is the length of the longest text.
	longest int
}

// Ordinary reports whether a value, such as true or 25565, is common in settings. Masking it
// would make texts unreadable, and its absence would reveal it.
func Ordinary(value string) bool {
	if len(value) >= Anywhere {
		return false
	}
	if _, err := strconv.ParseBool(value); err == nil {
		return true
	}
	_, err := strconv.ParseFloat(value, 64)
	return err == nil
}

// NewMask returns a mask for values and their Spellings.
func NewMask(values ...map[string]string) Mask {
	var all []string
	for _, some := range values {
		for _, v := range some {
			all = append(all, Spellings(v)...)
			if strings.Contains(v, "\n") {
				for line := range strings.Lines(v) { // logs may have them line by line
					if line = strings.TrimSpace(line); len(line) >= minMasked {
						all = append(all, line)
					}
				}
			}
		}
	}
	if len(all) == 0 {
		return Mask{}
	}
	longestFirst(all)
	m := Mask{byPrefix: map[[minMasked]byte][]string{}, longest: len(all[0])}
	for _, s := range slices.Compact(all) {
		m.byPrefix[prefixOf(s)] = append(m.byPrefix[prefixOf(s)], s)
	}
	return m
}

func prefixOf(s string) (prefix [minMasked]byte) {
	copy(prefix[:], s)
	return prefix
}

// Text returns s with the values replaced. Overlapping values are hidden completely.
func (m Mask) Text(s string) string { return m.Part(s, 0, len(s)) }

// ContextBytes returns how many bytes before and after a part of a text must be known to find all
// values that reach into the part.
func (m Mask) ContextBytes() int { return m.longest }

// Part returns the bytes from to to of s with the values replaced. It searches all of s.
func (m Mask) Part(s string, from, to int) string {
	if m.byPrefix == nil || from >= to {
		return s[from:to]
	}
	var out strings.Builder
	written, hidden := from, 0 // everything before hidden belongs to a value
	for at := 0; at < to && at+minMasked <= len(s); at++ {
		end := m.end(s, at)
		if end <= hidden {
			continue
		}
		if end > from {
			if at >= hidden || hidden <= from {
				out.WriteString(s[written:max(at, written)])
				out.WriteString(content.Hidden)
			}
			written = end
		}
		hidden = end
	}
	if out.Len() == 0 {
		return s[from:to]
	}
	out.WriteString(s[min(written, to):to])
	return out.String()
}

// end returns the end of the longest value that begins at a position; 0 if there is none.
func (m Mask) end(s string, at int) int {
	for _, one := range m.byPrefix[prefixOf(s[at:])] {
		end := at + len(one)
		if strings.HasPrefix(s[at:], one) && (len(one) >= Anywhere || IsWord(s, at, end)) {
			return end
		}
	}
	return 0
}

// IsWord reports whether a part of s, of at least one byte, is a word and not a part of one.
func IsWord(s string, from, end int) bool { return beginsWord(s, from) && endsWord(s, end) }

// endsWord reports whether no word continues at a position.
func endsWord(s string, at int) bool { return at == len(s) || !ofWord(s[at-1]) || !ofWord(s[at]) }

// endsEscape matches text that ends with a letter or digit but is not a word: terminal colours
// and escape sequences.
var endsEscape = regexp.MustCompile(`(\x1b\[[0-9;:?]*[A-Za-z]|\\[abefnrtv0]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2})$`)

// maxEscape is the maximum length of an escape sequence, in bytes.
const maxEscape = 24

// beginsWord reports whether a word begins at a position.
func beginsWord(s string, at int) bool {
	return at == 0 || !ofWord(s[at]) || !ofWord(s[at-1]) || endsEscape.MatchString(s[max(0, at-maxEscape):at])
}

// ofWord reports whether a byte belongs to a letter, a digit or _.
func ofWord(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Spellings returns a value's encodings in configuration files and logs: plain, quoted for JSON,
// YAML, properties and shells, escaped for URLs, in base64 and in hex. The longest is first.
// It returns none for a value that is too short to be masked.
func Spellings(value string) []string {
	if len(value) < minMasked {
		return nil
	}
	all := []string{
		value, quoted(value, true), quoted(value, false),
		strings.ReplaceAll(value, "'", "''"), strings.ReplaceAll(value, "'", `'\''`),
		properties(value), url.QueryEscape(value), url.PathEscape(value),
		base64.StdEncoding.EncodeToString([]byte(value)), base64.RawStdEncoding.EncodeToString([]byte(value)),
		base64.RawURLEncoding.EncodeToString([]byte(value)), hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))),
	}
	longestFirst(all)
	return slices.Compact(all)
}

func longestFirst(all []string) {
	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
}

// quoted returns a value as between the quotes of a JSON string.
func quoted(value string, html bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(value) != nil { // cannot fail for a string
		return value
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// properties returns a value as Java writes it to a .properties file.
func properties(value string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, ":", `\:`, "=", `\=`, "#", `\#`, "!", `\!`).Replace(value)
}
