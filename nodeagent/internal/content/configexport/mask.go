package configexport

import (
	"bytes"
	"cmp"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
)

const (
	// minAnywhere is the length in bytes from which a secret is found anywhere. A shorter
	// one is found only as a separate word, because it would be in every text.
	minAnywhere = 4
	// minLine is the length from which a single line of a multi-line secret is found.
	minLine = 8
)

// Secret is a text that must not leave the node.
type Secret struct {
	Value string
	// Placeholder replaces the value. If it is empty, files with the value are skipped.
	Placeholder string
	// Withheld marks a value that is not secret but hidden from some users. It may be an
	// ordinary word, so it is allowed in names, in longer words and in the template's lines.
	Withheld bool
}

// mask replaces secrets; ok is false if one cannot be replaced. It ignores lines that are in
// the template. It searches the original text for all secrets, so that replacing one
// secret does not hide another one that overlaps it.
func mask(name string, content, template []byte, secrets []Secret) (masked []byte, ok bool) {
	known := linesOf(template)
	r := newSearchText(name, withoutLines(content, known))
	var held []Secret
	for _, s := range secrets {
		if !r.mayContain(s) {
			continue
		}
		if s.Placeholder == "" || len(s.Value) < minAnywhere {
			return nil, false
		}
		held = append(held, s)
	}
	if len(held) == 0 {
		return content, true
	}
	if masked, ok = replaceSecrets(content, known, held); !ok {
		return nil, false
	}
	r = newSearchText(name, withoutLines(masked, known))
	return masked, !slices.ContainsFunc(held, r.mayContain)
}

// match is an occurrence of a secret, from its first byte to before end.
type match struct {
	from, end   int
	placeholder string
}

// replaceSecrets replaces secrets by their placeholders, the longest first if one contains
// another. It returns false if two overlap, because a part of one would remain. It keeps
// withheld values in longer words and in known lines.
func replaceSecrets(content []byte, known map[string]bool, all []Secret) ([]byte, bool) {
	var matches []match
	whole, changed := string(content), string(blankLines(content, known))
	for _, s := range all {
		text := whole
		if s.Withheld {
			text = changed
		}
		for at, before := 0, 0; ; at++ {
			n := strings.Index(text[at:], s.Value)
			if n < 0 {
				break
			}
			at += n
			end := at + len(s.Value)
			if s.Withheld && !secrets.IsWord(text, at, end) {
				continue
			}
			if at < before { // it overlaps itself
				return nil, false
			}
			before = end
			matches = append(matches, match{at, end, s.Placeholder})
		}
	}
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Or(a.from-b.from, b.end-a.end) })
	var out bytes.Buffer
	done := 0
	for _, p := range matches {
		switch {
		case p.from >= done:
			out.Write(content[done:p.from])
			out.WriteString(p.placeholder)
			done = p.end
		case p.end > done:
			return nil, false
		}
	}
	out.Write(content[done:])
	return out.Bytes(), true
}

// linesOf returns the set of lines of a content.
func linesOf(content []byte) map[string]bool {
	lines := map[string]bool{}
	for line := range bytes.Lines(content) {
		lines[string(bytes.TrimRight(line, "\r\n"))] = true
	}
	return lines
}

// withoutLines removes the known lines.
func withoutLines(content []byte, known map[string]bool) []byte {
	if len(known) == 0 {
		return content
	}
	var out bytes.Buffer
	for line := range bytes.Lines(content) {
		if !known[string(bytes.TrimRight(line, "\r\n"))] {
			out.Write(line)
		}
	}
	return out.Bytes()
}

// blankLines replaces the known lines by zero bytes, so that offsets stay the same.
func blankLines(content []byte, known map[string]bool) []byte {
	out := make([]byte, 0, len(content))
	for line := range bytes.Lines(content) {
		if text := bytes.TrimRight(line, "\r\n"); known[string(text)] {
			out = append(out, make([]byte, len(text))...)
			line = line[len(text):]
		}
		out = append(out, line...)
	}
	return out
}

// searchText is a text prepared for the search: decoded in several ways, and its numbers.
type searchText struct {
	texts   []string
	numbers map[float64]bool
}

func newSearchText(name string, content []byte) searchText {
	text, words := string(content), render.Words(name, content)
	r := searchText{texts: append(decodings(text), words...), numbers: map[float64]bool{}}
	for _, word := range append(words, strings.FieldsFunc(text, notOfNumber)...) {
		for _, n := range numbersOf(word) {
			r.numbers[n] = true
		}
	}
	return r
}

// mayContain reports whether the text may contain a secret.
func (r searchText) mayContain(s Secret) bool {
	coded := secrets.Spellings(s.Value)
	within := func(text string) bool {
		return s.containedIn(text) || slices.ContainsFunc(coded, func(c string) bool { return s.partIn(text, c) })
	}
	return s.Value != "" && (slices.ContainsFunc(r.texts, within) ||
		slices.ContainsFunc(numbersOf(s.Value), func(n float64) bool { return r.numbers[n] }))
}

// containedIn reports whether a text contains the secret itself or one of its longer lines.
func (s Secret) containedIn(text string) bool {
	if s.partIn(text, s.Value) {
		return true
	}
	for line := range strings.Lines(s.Value) { // a file may indent each line
		line = strings.TrimSpace(line)
		if len(line) >= minLine && len(line) < len(s.Value) && s.partIn(text, line) {
			return true
		}
	}
	return false
}

// partIn reports whether a text contains a part or an encoding of the secret.
func (s Secret) partIn(text, part string) bool {
	switch {
	case s.Withheld:
		return hasWord(text, part, secrets.IsWord)
	case len(s.Value) < minAnywhere:
		return hasWord(text, part, isSeparate)
	}
	return strings.Contains(text, part)
}

// decodings returns a text itself and with the escapes of several formats resolved.
func decodings(text string) []string {
	all := []string{text}
	if strings.Contains(text, `\`) {
		all = append(all, unescaped(text))
	}
	if strings.Contains(text, "''") {
		all = append(all, strings.ReplaceAll(text, "''", "'"))
	}
	if strings.Contains(text, "&") {
		all = append(all, html.UnescapeString(text))
	}
	if strings.Contains(text, "%") {
		all = append(all, percentDecoded(text))
	}
	return all
}

// unescaped resolves backslash escapes of JSON, YAML, TOML and .properties, including continued
// lines. It drops the backslash of an unknown escape.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'x', 'u', 'U':
			size := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			r, n := render.HexRune(s[i+1:], size)
			if n == 0 {
				b.WriteByte(c)
				continue
			}
			b.WriteRune(r)
			i += n
		case '\n', '\r':
			for i+1 < len(s) && strings.IndexByte(" \t\r\n", s[i+1]) >= 0 {
				i++
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// percentDecoded resolves percent encoding, and keeps invalid sequences.
func percentDecoded(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(v)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// hasWord reports whether a text contains a word at a position that is accepts.
func hasWord(text, word string, is func(text string, from, end int) bool) bool {
	for at := 0; ; at++ {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return false
		}
		if at += i; is(text, at, at+len(word)) {
			return true
		}
	}
}

// isSeparate reports whether no letter or digit is next to a part of a text.
func isSeparate(text string, from, end int) bool {
	return (from == 0 || !ofWord(text[from-1])) && (end == len(text) || !ofWord(text[end]))
}

func ofWord(c byte) bool {
	return c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// notOfNumber reports whether a character cannot be part of a number in any format.
func notOfNumber(r rune) bool {
	return !(r == '.' || r == '+' || r == '-' || r == '_' || r < 0x80 && ofWord(byte(r)))
}

// numbersOf returns the numbers that a word can mean: decimal, hexadecimal, and octal with a
// leading zero.
func numbersOf(word string) (all []float64) {
	word = strings.TrimSuffix(strings.ReplaceAll(strings.TrimSpace(word), "_", ""), ".")
	if word == "" || len(word) > 64 {
		return nil
	}
	if v, err := strconv.ParseFloat(word, 64); err == nil && v == v {
		all = append(all, v)
	}
	if v, err := strconv.ParseInt(word, 0, 64); err == nil {
		all = append(all, float64(v))
	}
	return all
}
