package save

import (
	"bytes"
	"cmp"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/orreryhq/orrery/nodeagent/internal/render"
	"github.com/orreryhq/orrery/nodeagent/internal/secrets"
)

const (
	// certain is from how many bytes on a secret is one wherever it stands; a shorter one
	// only where it is a word of its own, or it would be in every text.
	certain = 4
	// telling is how long a line of a secret of several lines must be to tell it.
	telling = 8
)

// Secret is a text that must not leave the node.
type Secret struct {
	Value string
	// Placeholder is what is written in its place; empty: a file that holds it is left out.
	Placeholder string
	// Withheld is that it is no secret but a value that some are not shown, which may be an
	// ordinary one: names may have it, and so may longer words, and the template's own lines.
	Withheld bool
}

// mask replaces secrets, and is false where one cannot be replaced: in doubt it is one.
// Lines that the template has itself hold none of the instance's. Which ones are held is
// asked of the text as it is: one that is part of another is not looked for in what is left.
func mask(name string, content, template []byte, secrets []Secret) (masked []byte, ok bool) {
	known := linesOf(template)
	r := readingOf(name, without(content, known))
	var held []Secret
	for _, s := range secrets {
		if !r.holds(s) {
			continue
		}
		if s.Placeholder == "" || len(s.Value) < certain {
			return nil, false
		}
		held = append(held, s)
	}
	if len(held) == 0 {
		return content, true
	}
	if masked, ok = replaced(content, known, held); !ok {
		return nil, false
	}
	r = readingOf(name, without(masked, known))
	return masked, !slices.ContainsFunc(held, r.holds)
}

// place is where a secret stands in a content, from its first byte to before its end.
type place struct {
	from, end   int
	placeholder string
}

// replaced has the placeholders of secrets in their place, the longest where one is part
// of another. It is false where two overlap: then something of one would be left. What is
// withheld stays within longer words, and in the lines that are known.
func replaced(content []byte, known map[string]bool, all []Secret) ([]byte, bool) {
	var places []place
	whole, changed := string(content), string(blanked(content, known))
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
			if at < before { // it overlaps with itself
				return nil, false
			}
			before = end
			places = append(places, place{at, end, s.Placeholder})
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Or(a.from-b.from, b.end-a.end) })
	var out bytes.Buffer
	done := 0
	for _, p := range places {
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

// linesOf are the lines of a content, without their ends.
func linesOf(content []byte) map[string]bool {
	lines := map[string]bool{}
	for line := range bytes.Lines(content) {
		lines[string(bytes.TrimRight(line, "\r\n"))] = true
	}
	return lines
}

// without is a content without the lines that are known.
func without(content []byte, known map[string]bool) []byte {
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

// blanked is a content with nothing in the lines that are known; all else is where it was.
func blanked(content []byte, known map[string]bool) []byte {
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

// reading is a text as it may be read: in whatever spelling, escaped as formats and URLs
// do it, and by its numbers.
type reading struct {
	texts   []string
	numbers map[float64]bool
}

func readingOf(name string, content []byte) reading {
	text, words := string(content), render.Words(name, content)
	r := reading{texts: append(spellings(text), words...), numbers: map[float64]bool{}}
	for _, word := range append(words, strings.FieldsFunc(text, notOfNumber)...) {
		for _, n := range numbersOf(word) {
			r.numbers[n] = true
		}
	}
	return r
}

// holds reports whether the text may hold a secret.
func (r reading) holds(s Secret) bool {
	coded := secrets.Spellings(s.Value)
	within := func(text string) bool {
		return s.within(text) || slices.ContainsFunc(coded, func(c string) bool { return s.standsIn(text, c) })
	}
	return s.Value != "" && (slices.ContainsFunc(r.texts, within) ||
		slices.ContainsFunc(numbersOf(s.Value), func(n float64) bool { return r.numbers[n] }))
}

// within reports whether a text holds the secret as it is.
func (s Secret) within(text string) bool {
	if s.standsIn(text, s.Value) {
		return true
	}
	for line := range strings.Lines(s.Value) { // a file may indent each of its lines
		line = strings.TrimSpace(line)
		if len(line) >= telling && len(line) < len(s.Value) && s.standsIn(text, line) {
			return true
		}
	}
	return false
}

// standsIn reports whether a text has a part of the secret, or a spelling of it, where it
// tells the secret.
func (s Secret) standsIn(text, part string) bool {
	switch {
	case s.Withheld:
		return hasWord(text, part, secrets.IsWord)
	case len(s.Value) < certain:
		return hasWord(text, part, standsAlone)
	}
	return strings.Contains(text, part)
}

// spellings are a text as it is and as it reads with the escapes of several formats resolved.
func spellings(text string) []string {
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

// unescaped resolves backslashes as JSON, YAML, TOML and .properties write them, a line
// that is continued included. What is none stays without its backslash.
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
			r, n := hexRune(s[i+1:], size)
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

// hexRune is the character of so many hex digits, a pair of surrogates if need be, and
// how many bytes it takes; 0 where they are none.
func hexRune(s string, size int) (rune, int) {
	if len(s) < size {
		return 0, 0
	}
	v, err := strconv.ParseUint(s[:size], 16, 32)
	if err != nil {
		return 0, 0
	}
	r := rune(v)
	if rest, ok := strings.CutPrefix(s[size:], `\u`); ok && size == 4 && r >= 0xd800 && r < 0xdc00 && len(rest) >= 4 {
		if low, err := strconv.ParseUint(rest[:4], 16, 16); err == nil && low >= 0xdc00 && low < 0xe000 {
			return (r-0xd800)<<10 + rune(low) - 0xdc00 + 0x10000, size + 6
		}
	}
	if !utf8.ValidRune(r) {
		r = utf8.RuneError
	}
	return r, size
}

// percentDecoded resolves what is percent-encoded; a sign that begins nothing stays.
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

// hasWord reports whether a text holds a word where it is one, as is says of the bytes
// from one offset to before another.
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

// standsAlone reports whether a part of a text has no letter or digit beside it.
func standsAlone(text string, from, end int) bool {
	return (from == 0 || !ofWord(text[from-1])) && (end == len(text) || !ofWord(text[end]))
}

func ofWord(c byte) bool {
	return c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// notOfNumber reports whether no number, in any format, has a character in it.
func notOfNumber(r rune) bool {
	return !(r == '.' || r == '+' || r == '-' || r == '_' || r < 0x80 && ofWord(byte(r)))
}

// numbersOf are the numbers a word may be read as: decimal, hexadecimal, and with a zero
// before it octal; none for what is no number.
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
