package record

import (
	"strconv"
	"strings"
	"time"
	"unique"
)

// Reader parses JSON in exactly the form in which encoding/json writes a record: fields in order, and
// no characters that need escaping. Plain becomes false if the text has another form. The argument
// of a method is the text before the value.
type Reader struct {
	Rest  string
	Plain bool
}

// Found consumes a word if it is next.
func (r *Reader) Found(word string) bool {
	rest, ok := strings.CutPrefix(r.Rest, word)
	if ok {
		r.Rest = rest
	}
	return ok
}

// Raw consumes a word.
func (r *Reader) Raw(word string) {
	if !r.Found(word) {
		r.Plain, r.Rest = false, ""
	}
}

// Text consumes a string. It is a part of the record's text.
func (r *Reader) Text(name string) string {
	r.Raw(name)
	r.Raw(`"`)
	for i := range len(r.Rest) {
		switch c := r.Rest[i]; {
		case c == '"':
			s := r.Rest[:i]
			r.Rest = r.Rest[i+1:]
			return s
		case !plainByte(c):
			r.Plain, r.Rest = false, ""
			return ""
		}
	}
	r.Plain, r.Rest = false, ""
	return ""
}

// Own is Text in memory of its own: Text keeps the whole record in memory.
func (r *Reader) Own(name string) string { return strings.Clone(r.Text(name)) }

// Shared is Own for a text that many records have. It is in memory once.
func (r *Reader) Shared(name string) string { return unique.Make(r.Text(name)).Value() }

// digits consumes a number's digits, without leading zeros.
func (r *Reader) digits() {
	n := 0
	for n < len(r.Rest) && r.Rest[n] >= '0' && r.Rest[n] <= '9' {
		n++
	}
	if n == 0 || n > 1 && r.Rest[0] == '0' {
		r.Plain, r.Rest = false, ""
		return
	}
	r.Rest = r.Rest[n:]
}

// Number consumes a whole number.
func (r *Reader) Number(name string) int64 {
	r.Raw(name)
	whole := r.Rest
	r.Found("-")
	r.digits()
	v, err := strconv.ParseInt(whole[:len(whole)-len(r.Rest)], 10, 64)
	if err != nil {
		r.Plain = false
	}
	return v
}

// maxFraction is the maximum length of a number that certainly fits a float64.
const maxFraction = 64

// Numbers consumes an object whose values are numbers and returns its text.
func (r *Reader) Numbers() string {
	whole := r.Rest
	r.Raw("{")
	for !r.Found("}") && r.Plain {
		r.Text("")
		r.Raw(":")
		r.fraction()
		if !strings.HasPrefix(r.Rest, "}") {
			r.Raw(",")
			r.Plain = r.Plain && !strings.HasPrefix(r.Rest, "}")
		}
	}
	return strings.Clone(whole[:len(whole)-len(r.Rest)])
}

// fraction consumes a number.
func (r *Reader) fraction() {
	left := len(r.Rest)
	r.Found("-")
	r.digits()
	if r.Found(".") {
		for r.Found("0") { // digits accepts no leading zero
			if r.Rest == "" || r.Rest[0] < '0' || r.Rest[0] > '9' {
				return
			}
		}
		r.digits()
	}
	r.Plain = r.Plain && left-len(r.Rest) <= maxFraction
}

// Time consumes a time.
func (r *Reader) Time(name string) (t time.Time) {
	if err := t.UnmarshalText([]byte(r.Text(name))); err != nil {
		r.Plain = false
	}
	return t
}

// plainByte reports whether encoding/json writes a byte of a string unchanged.
func plainByte(c byte) bool {
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}
