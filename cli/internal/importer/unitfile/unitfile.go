// Package unitfile reads the unit files of systemd.
package unitfile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

// File is a unit: the values of each key of each section, in order. A key without a value
// removes those before it.
type File map[string]map[string][]string

// Parse adds the text of a unit file or of a drop-in to a unit.
func (f File) Parse(name, text string) error {
	section, number := "", 0
	var kept string
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimSpace(line)
		if kept == "" && trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
			continue
		}
		if rest, ok := strings.CutSuffix(line, `\`); ok {
			kept += rest + " "
			continue
		}
		trimmed, kept = strings.TrimSpace(kept+line), ""
		if strings.HasPrefix(trimmed, "[") && strings.HasSuffix(trimmed, "]") {
			section = trimmed[1 : len(trimmed)-1]
			continue
		}
		key, value, ok := strings.Cut(trimmed, "=")
		if !ok || section == "" {
			return fmt.Errorf("%s:%d:1: want [Section] or Key=value", name, number)
		}
		f.add(section, strings.TrimSpace(key), strings.TrimSpace(value))
	}
	return nil
}

func (f File) add(section, key, value string) {
	if f[section] == nil {
		f[section] = map[string][]string{}
	}
	if value == "" {
		delete(f[section], key)
		return
	}
	f[section][key] = append(f[section][key], value)
}

// Words splits a line into words as systemd does: at blanks, with quotes and escapes.
func Words(line string) []string {
	var out []string
	var word strings.Builder
	started, quoted := false, byte(0)
	for n := 0; n < len(line); n++ {
		switch c := line[n]; {
		case c == '\\' && n+1 < len(line):
			n++
			word.WriteString(unescaped(line[n]))
			started = true
		case quoted == c && quoted != 0:
			quoted = 0
		case quoted == 0 && (c == '"' || c == '\''):
			quoted, started = c, true
		case quoted == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if started {
				out = append(out, word.String())
				word.Reset()
			}
			started = false
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if started {
		out = append(out, word.String())
	}
	return out
}

func unescaped(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 's':
		return " "
	}
	return string(c)
}

var size = lazyregexp.New(`^(\d{1,15})([KMGT]?)B?$`)

// MiB reads a size such as 2G. ok is false for another form, such as infinity or 10%.
func MiB(text string) (n int, ok bool) {
	match := size().FindStringSubmatch(strings.ToUpper(text))
	if match == nil {
		return 0, false
	}
	bytes, err := strconv.ParseInt(match[1], 10, 64)
	if err != nil {
		return 0, false
	}
	const most = 1 << 30 // a pebibyte
	perMiB := map[string]float64{"": 1 << 20, "K": 1 << 10, "M": 1, "G": 1.0 / (1 << 10), "T": 1.0 / (1 << 20)}[match[2]]
	n = int(min(float64(bytes)/perMiB, most+1))
	return n, n > 0 && n <= most
}

var timePart = lazyregexp.New(`^\s*(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)`)

// Seconds reads a time such as "1min 30s". ok is false for another form, such as infinity.
func Seconds(text string) (n int, ok bool) {
	units := map[string]time.Duration{
		"": time.Second, "s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
		"ms": time.Millisecond, "msec": time.Millisecond, "m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
		"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	}
	var total float64
	for rest := strings.TrimSpace(text); rest != ""; {
		match := timePart().FindStringSubmatch(rest)
		if match == nil || units[match[2]] == 0 {
			return 0, false
		}
		number, _ := strconv.ParseFloat(match[1], 64)
		total += number * units[match[2]].Seconds()
		rest = strings.TrimSpace(rest[len(match[0]):])
		ok = true
	}
	return int(min(total, 24*3600)), ok
}

var specifier = lazyregexp.New(`%.`)

// Specifiers returns a text with the specifiers of a unit's name replaced, such as %i, and those that
// it does not know.
func Specifiers(text, unit string) (out string, unknown []string) {
	full := strings.TrimSuffix(unit, ".service")
	prefix, instance, _ := strings.Cut(full, "@")
	known := map[string]string{"%%": "%", "%i": instance, "%I": strings.ReplaceAll(instance, "-", "/"), "%n": unit, "%N": full, "%p": prefix, "%P": strings.ReplaceAll(prefix, "-", "/")}
	out = specifier().ReplaceAllStringFunc(text, func(s string) string {
		value, ok := known[s]
		if !ok {
			unknown = append(unknown, s)
			return s
		}
		return value
	})
	return out, unknown
}
