package render

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// properties is a .properties file as logical lines. Unchanged lines keep their bytes,
// including comments and line endings.
type properties struct {
	lines []propertyLine
	// end is the line ending of added lines.
	end string
	// at is the index of each key's last line, which is the effective one.
	at map[string]int
}

// propertyLine is a logical line: a pair, or a comment or blank line.
type propertyLine struct {
	raw   string // with continuations, without the final line ending
	end   string // the line ending; empty at the end of the file
	key   string
	value string
	pair  bool
}

func readProperties(content []byte) *properties {
	p := &properties{at: map[string]int{}, end: "\n"}
	natural := naturalLines(string(content))
	if len(natural) > 0 && natural[0].end != "" {
		p.end = natural[0].end
	}
	for i := 0; i < len(natural); i++ {
		line := natural[i]
		logical := strings.TrimLeft(line.raw, " \t\f")
		if logical != "" && logical[0] != '#' && logical[0] != '!' {
			for continued(logical) && i+1 < len(natural) {
				i++
				line.raw, line.end = line.raw+line.end+natural[i].raw, natural[i].end
				logical = logical[:len(logical)-1] + strings.TrimLeft(natural[i].raw, " \t\f")
			}
			if continued(logical) { // at the end of the file
				line.raw, logical = strings.TrimSuffix(line.raw, `\`), strings.TrimSuffix(logical, `\`)
			}
			if line.pair = logical != ""; line.pair {
				line.key, line.value = splitProperty(logical)
				p.at[line.key] = len(p.lines)
			}
		}
		p.lines = append(p.lines, line)
	}
	return p
}

// naturalLines splits a text at \n, \r and \r\n.
func naturalLines(text string) (lines []propertyLine) {
	for text != "" {
		i := strings.IndexAny(text, "\r\n")
		if i < 0 {
			return append(lines, propertyLine{raw: text})
		}
		end := text[i : i+1]
		if strings.HasPrefix(text[i:], "\r\n") {
			end = "\r\n"
		}
		lines = append(lines, propertyLine{raw: text[:i], end: end})
		text = text[i+len(end):]
	}
	return lines
}

// continued reports whether a line ends with an odd number of backslashes.
func continued(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// splitProperty returns a logical line's key and value, unescaped.
func splitProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	value = strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return unescape(line[:end]), unescape(value)
}

func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			if s[i] != '\\' {
				b.WriteByte(s[i])
			}
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			r, n := HexRune(s[i+1:], 4)
			if n == 0 {
				r = 'u'
			}
			b.WriteRune(r)
			i += n
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// HexRune decodes size hex digits, including a surrogate pair, and returns the number of bytes
// used; 0 if they are not hex digits.
func HexRune(s string, size int) (rune, int) {
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

// set sets a key's value, in its line or in a new one at the end.
func (p *properties) set(key, value string) {
	p.put(propertyLine{raw: escapeProperty(key, true) + "=" + escapeProperty(value, false), key: key, value: value, pair: true})
}

func (p *properties) put(line propertyLine) {
	if i, ok := p.at[line.key]; ok {
		line.end = p.lines[i].end
		p.lines[i] = line
		return
	}
	if last := len(p.lines) - 1; last >= 0 && p.lines[last].end == "" {
		p.lines[last].end = p.end
	}
	line.end = p.end
	p.at[line.key] = len(p.lines)
	p.lines = append(p.lines, line)
}

func escapeProperty(s string, key bool) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\f':
			b.WriteString(`\f`)
		case c == '\\', c == ' ' && (key || i == 0), key && strings.IndexByte("=:#!", c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// line returns the effective line of a key.
func (p *properties) line(key string) (propertyLine, bool) {
	i, ok := p.at[key]
	if !ok {
		return propertyLine{}, false
	}
	return p.lines[i], true
}

// overlay takes over the pairs of another file, as they are written there.
func (p *properties) overlay(over *properties) {
	for i, line := range over.lines {
		if line.pair && over.at[line.key] == i {
			if j, ok := p.at[line.key]; ok && p.lines[j].value == line.value {
				continue
			}
			p.put(line)
		}
	}
}

func (p *properties) bytes() []byte {
	var b strings.Builder
	for _, l := range p.lines {
		b.WriteString(l.raw)
		b.WriteString(l.end)
	}
	return []byte(b.String())
}
