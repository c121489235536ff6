package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// leastMasked is how long a text must be to be looked for, in bytes: a shorter one is in
// every text. It holds for each line of a value with several, too.
const leastMasked = 4

// Mask hides values in texts. The zero Mask hides nothing.
type Mask struct{ replace *strings.Replacer }

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
	all = slices.Compact(all)
	var pairs []string
	for _, s := range all {
		pairs = append(pairs, s, fleet.Hidden)
	}
	return Mask{strings.NewReplacer(pairs...)}
}

// Text is s without the values.
func (m Mask) Text(s string) string {
	if m.replace == nil {
		return s
	}
	return m.replace.Replace(s)
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
