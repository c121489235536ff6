package arena

import (
	"fmt"
	"strconv"
	"strings"
)

// parseProperties parses the format of Java's .properties files. A line is "key=value",
// "key: value" or "key value". Comments start with # or !. A backslash at the end of a line
// continues it. The escapes are \t \n \r \f \uXXXX; any other escaped character is itself.
// All keys are kept, and a later value replaces an earlier one.
func parseProperties(text string) (map[string]string, error) {
	props := map[string]string{}
	number, start := 0, 0
	pending, continued := "", false
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t\f")
		if !continued {
			start = number
			if line == "" || line[0] == '#' || line[0] == '!' {
				continue
			}
		}
		if continued = endsEscaped(line); continued {
			pending += line[:len(line)-1]
			continue
		}
		if err := addProperty(props, pending+line); err != nil {
			return nil, fmt.Errorf("line %d: %w", start, err)
		}
		pending = ""
	}
	if continued {
		if err := addProperty(props, pending); err != nil {
			return nil, fmt.Errorf("line %d: %w", start, err)
		}
	}
	return props, nil
}

// endsEscaped reports whether the line ends in an odd number of backslashes.
func endsEscaped(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

func addProperty(props map[string]string, line string) error {
	end := keyEnd(line)
	value := strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	key, err := unescape(line[:end])
	if err != nil {
		return err
	}
	if props[key], err = unescape(value); err != nil {
		return err
	}
	return nil
}

// keyEnd returns the index of the first unescaped separator.
func keyEnd(line string) int {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '=', ':', ' ', '\t', '\f':
			return i
		}
	}
	return len(line)
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			r, err := hexRune(s[i+1:])
			if err != nil {
				return "", err
			}
			out.WriteRune(r)
			i += 4
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), nil
}

func hexRune(s string) (rune, error) {
	if len(s) < 4 {
		return 0, fmt.Errorf(`\u needs four hexadecimal digits, not %q`, s)
	}
	r, err := strconv.ParseUint(s[:4], 16, 16)
	if err != nil {
		return 0, fmt.Errorf(`\u needs four hexadecimal digits, not %q`, s[:4])
	}
	return rune(r), nil
}
