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

	"github.com/orreryhq/orrery/libs/fleet"
)

// What is looked for in texts, for values, their spellings and each line of a value with
// several alike, by their length in bytes: from Anywhere on it is hidden wherever it stands,
// from leastMasked on where it is a word of its own, and what is shorter not at all. It is
// in every text: to hide it would make all unreadable, and show what it is.
const (
	leastMasked = 4
	Anywhere    = 8
)

// Mask hides values in texts. The zero Mask hides nothing.
type Mask struct {
	// byHead are the texts to hide by the bytes they begin with, the longest first.
	byHead map[[leastMasked]byte][]string
	// longest is the length of the longest of them.
	longest int
}

// Ordinary reports whether a value, such as true or 25565, is one that many settings have:
// who hides it makes texts unreadable, and tells the value by where it is missing.
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

// NewMask hides values, as they are and in the spellings of Spellings.
func NewMask(values ...map[string]string) Mask {
	var all []string
	for _, some := range values {
		for _, v := range some {
			all = append(all, Spellings(v)...)
			if strings.Contains(v, "\n") {
				for line := range strings.Lines(v) { // a log has them line by line
					if line = strings.TrimSpace(line); len(line) >= leastMasked {
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
	m := Mask{byHead: map[[leastMasked]byte][]string{}, longest: len(all[0])}
	for _, s := range slices.Compact(all) {
		m.byHead[headOf(s)] = append(m.byHead[headOf(s)], s)
	}
	return m
}

func headOf(s string) (head [leastMasked]byte) {
	copy(head[:], s)
	return head
}

// Text is s without the values. Of two that overlap nothing is left.
func (m Mask) Text(s string) string { return m.Part(s, 0, len(s)) }

// Around is how much of a text before and after a part of it may be of a value that reaches
// into the part, in bytes.
func (m Mask) Around() int { return m.longest }

// Part is what Text leaves of the bytes of s from one offset to before another.
func (m Mask) Part(s string, from, to int) string {
	if m.byHead == nil || from >= to {
		return s[from:to]
	}
	var out strings.Builder
	written, hidden := from, 0 // before hidden all is a value's
	for at := 0; at < to && at+leastMasked <= len(s); at++ {
		end := m.end(s, at)
		if end <= hidden {
			continue
		}
		if end > from {
			if at >= hidden || hidden <= from {
				out.WriteString(s[written:max(at, written)])
				out.WriteString(fleet.Hidden)
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

// end is where the longest value ends that begins at a place; 0 when there is none.
func (m Mask) end(s string, at int) int {
	for _, one := range m.byHead[headOf(s[at:])] {
		end := at + len(one)
		if strings.HasPrefix(s[at:], one) && (len(one) >= Anywhere || IsWord(s, at, end)) {
			return end
		}
	}
	return 0
}

// IsWord reports whether the bytes of s from one offset to before another, one at least, are
// of no longer word.
func IsWord(s string, from, end int) bool { return beginsWord(s, from) && endsWord(s, end) }

// endsWord reports whether no word goes on at a place.
func endsWord(s string, at int) bool { return at == len(s) || !ofWord(s[at-1]) || !ofWord(s[at]) }

// escaped is what ends in a letter or digit and yet is of no word: a colour of a terminal,
// and what escapes write.
var escaped = regexp.MustCompile(`(\x1b\[[0-9;:?]*[A-Za-z]|\\[abefnrtv0]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2})$`)

// maxEscape is how far back an escape may begin, in bytes.
const maxEscape = 24

// beginsWord reports whether no word goes on at a place from before it.
func beginsWord(s string, at int) bool {
	return at == 0 || !ofWord(s[at]) || !ofWord(s[at-1]) || escaped.MatchString(s[max(0, at-maxEscape):at])
}

// ofWord reports whether a byte is of a letter, a digit or _.
func ofWord(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Spellings are the ways in which configuration files and logs write a value: as it is,
// quoted for JSON, YAML, properties and shells, escaped for URLs, in base64, in hexadecimal digits. None for a
// value that is too short to be looked for; the longest first.
func Spellings(value string) []string {
	if len(value) < leastMasked {
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

// quoted is a value as it stands between the quotes of JSON.
func quoted(value string, html bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(value) != nil { // a string always can be
		return value
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// properties is a value as Java writes it into a .properties file.
func properties(value string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, ":", `\:`, "=", `\=`, "#", `\#`, "!", `\!`).Replace(value)
}
