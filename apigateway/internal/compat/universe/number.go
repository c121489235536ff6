package universe

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
)

// whole is an integer that clients send as a number or string, with Gson's rules: 12, 12.0, "12" and
// "12.0" are equal.
type whole int

// UnmarshalJSON decodes an integer. null changes nothing.
func (n *whole) UnmarshalJSON(b []byte) error {
	text := unquoted(b)
	if text == "null" {
		return nil
	}
	i, err := strconv.ParseInt(text, 10, 32)
	if f, inexact := strconv.ParseFloat(text, 64); err != nil && inexact == nil && f == math.Trunc(f) && math.Abs(f) <= math.MaxInt32 {
		i, err = int64(f), nil
	}
	if err != nil {
		return &json.UnmarshalTypeError{Value: kindOf(b), Type: reflect.TypeFor[int]()}
	}
	*n = whole(i)
	return nil
}

// real is a number that clients send as a number or string.
type real float64

// UnmarshalJSON decodes a finite number. null changes nothing.
func (n *real) UnmarshalJSON(b []byte) error {
	text := unquoted(b)
	if text == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return &json.UnmarshalTypeError{Value: kindOf(b), Type: reflect.TypeFor[float64]()}
	}
	*n = real(f)
	return nil
}

// unquoted returns a JSON value as text, without the quotes of a string.
func unquoted(b []byte) string {
	var text string
	if b[0] == '"' && json.Unmarshal(b, &text) == nil {
		return text
	}
	return string(b)
}

// kindOf returns the type of a JSON value as encoding/json's errors name it.
func kindOf(b []byte) string {
	switch b[0] {
	case '"':
		return "string " + string(b[:min(len(b), 40)])
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "bool"
	}
	return "number " + string(b[:min(len(b), 40)])
}
