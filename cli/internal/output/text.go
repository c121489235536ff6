package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"
)

// steers reports whether a character could steer a terminal, or change the order of the text after it.
func steers(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Clean removes characters that could steer a terminal, except line breaks and tabs.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// Change returns a line such as "minInstances: 1 → 3" for a changed field.
func Change(field string, from, to json.RawMessage) string {
	return Clean(field + ": " + value(from) + " → " + value(to))
}

// value returns a JSON value in one line. Strings have no quotes unless they are empty.
func value(raw json.RawMessage) string {
	if parsed := gjson.ParseBytes(raw); parsed.Type == gjson.String && parsed.String() != "" {
		return strings.ReplaceAll(parsed.String(), "\n", " ")
	}
	var compact bytes.Buffer
	if len(raw) == 0 || string(raw) == "null" || json.Compact(&compact, raw) != nil {
		return "none"
	}
	return compact.String()
}

// fieldsOf returns a column for each field of an object that is not an object or a list.
func fieldsOf(row Row) []Column {
	var columns []Column
	gjson.ParseBytes(row).ForEach(func(name, value gjson.Result) bool {
		if !value.IsObject() && !value.IsArray() {
			columns = append(columns, Column{Header: name.String(), Path: gjson.Escape(name.String())})
		}
		return true
	})
	return columns
}
