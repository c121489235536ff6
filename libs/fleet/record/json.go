package record

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Writer appends JSON. plain becomes false if a value needs escaping.
type Writer struct {
	B     []byte
	Plain bool
}

func (w *Writer) Raw(s string) { w.B = append(w.B, s...) }

func (w *Writer) Text(name, s string) {
	for i := range len(s) {
		if !plainByte(s[i]) {
			w.Plain = false
		}
	}
	w.B = append(append(append(append(w.B, name...), '"'), s...), '"')
}

// plainByte reports whether encoding/json writes a byte of a string unchanged.
func plainByte(c byte) bool {
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

func (w *Writer) Number(name string, v int64) {
	w.B = strconv.AppendInt(append(w.B, name...), v, 10)
}

func (w *Writer) Numbers(name, s string) {
	if s == "" {
		return
	}
	r := Reader{Rest: s, Plain: true}
	r.Numbers()
	w.Plain = w.Plain && r.Plain && r.Rest == ""
	w.B = append(append(w.B, name...), s...)
}

func (w *Writer) Time(name string, t time.Time) {
	w.Raw(name)
	text, err := t.MarshalJSON()
	w.Plain = w.Plain && err == nil
	w.B = append(w.B, text...)
}

func AppendMap[V any](w *Writer, name string, m map[string]V, value func(V)) {
	if len(m) == 0 {
		return
	}
	w.Raw(name)
	var buf [16]string
	keys := buf[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	separator := "{"
	for _, k := range keys {
		w.Text(separator, k)
		w.Raw(":")
		value(m[k])
		separator = ","
	}
	w.Raw("}")
}

// Reader parses JSON. plain becomes false if the text has another form.
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

func (r *Reader) Raw(word string) {
	if !r.Found(word) {
		r.Plain, r.Rest = false, ""
	}
}

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

// digits consumes a number's digits, without leading zeros.
func (r *Reader) digits() string {
	n := 0
	for n < len(r.Rest) && r.Rest[n] >= '0' && r.Rest[n] <= '9' {
		n++
	}
	s := r.Rest[:n]
	if n == 0 || n > 1 && s[0] == '0' {
		r.Plain, r.Rest = false, ""
		return ""
	}
	r.Rest = r.Rest[n:]
	return s
}

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
	return whole[:len(whole)-len(r.Rest)]
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

func (r *Reader) Time(name string) (t time.Time) {
	if err := t.UnmarshalText([]byte(r.Text(name))); err != nil {
		r.Plain = false
	}
	return t
}

func ParseMap[V any](r *Reader, name string, value func() V) map[string]V {
	if !r.Found(name) {
		return nil
	}
	m := make(map[string]V, 8)
	r.Raw("{")
	for r.Plain {
		k := r.Text("")
		r.Raw(":")
		m[k] = value()
		if !r.Found(",") {
			break
		}
	}
	r.Raw("}")
	return m
}
