package fleet

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Placements and allocs are written and read more often than all other records
// together. Their JSON is written and read here, byte for byte as encoding/json
// would; what is not plain (a character to be escaped, a field out of order) is
// left to encoding/json, by returning false.

// AppendRecord appends the placement's JSON; false when it is not plain, and then
// nothing is appended.
func (p Placement) AppendRecord(b []byte) ([]byte, bool) {
	w := recordWriter{b: b, plain: true}
	w.text(`{"instance":`, string(p.Instance))
	w.text(`,"name":`, p.Name)
	w.text(`,"group":`, string(p.Group))
	w.text(`,"node":`, string(p.Node))
	w.number(`,"generation":`, p.Generation)
	w.text(`,"plan":`, p.Plan)
	if p.DataUUID != "" {
		w.text(`,"dataUUID":`, p.DataUUID)
	}
	w.raw(`,"resources":{`)
	separator := ""
	for _, part := range [...]struct {
		name  string
		value int
	}{{`"memoryMiB":`, p.Resources.MemoryMiB}, {`"cpu":`, p.Resources.CPU}, {`"diskMiB":`, p.Resources.DiskMiB}} {
		if part.value != 0 {
			w.raw(separator)
			w.number(part.name, int64(part.value))
			separator = ","
		}
	}
	w.number(`},"port":`, int64(p.Port))
	appendMap(&w, `,"ports":`, p.Ports, func(v int) { w.number("", int64(v)) })
	if p.Alone {
		w.raw(`,"alone":true`)
	}
	appendMap(&w, `,"values":`, p.Values, func(v string) { w.text("", v) })
	w.number(`,"epoch":`, p.Epoch)
	w.time(`,"placedAt":`, p.PlacedAt)
	if p.FromRevision != 0 {
		w.number(`,"fromRevision":`, p.FromRevision)
	}
	w.scores(`,"score":`, p.Score)
	w.raw("}")
	if !w.plain {
		return b, false
	}
	return w.b, true
}

// ParseRecord reads what AppendRecord has written; false for anything else.
func (p *Placement) ParseRecord(b []byte) bool {
	var out Placement
	r := recordReader{rest: string(b), plain: true}
	out.Instance = InstanceID(r.text(`{"instance":`))
	out.Name = r.text(`,"name":`)
	out.Group = GroupName(r.text(`,"group":`))
	out.Node = NodeID(r.text(`,"node":`))
	out.Generation = r.number(`,"generation":`)
	out.Plan = r.text(`,"plan":`)
	if r.found(`,"dataUUID":`) {
		out.DataUUID = r.text("")
	}
	r.raw(`,"resources":{`)
	separator := ""
	for _, part := range [...]struct {
		name  string
		value *int
	}{{`"memoryMiB":`, &out.Resources.MemoryMiB}, {`"cpu":`, &out.Resources.CPU}, {`"diskMiB":`, &out.Resources.DiskMiB}} {
		if r.found(separator + part.name) {
			*part.value = int(r.number(""))
			separator = ","
		}
	}
	out.Port = int(r.number(`},"port":`))
	out.Ports = parseMap(&r, `,"ports":`, func() int { return int(r.number("")) })
	out.Alone = r.found(`,"alone":true`)
	out.Values = parseMap(&r, `,"values":`, func() string { return r.text("") })
	out.Epoch = r.number(`,"epoch":`)
	out.PlacedAt = r.time(`,"placedAt":`)
	if r.found(`,"fromRevision":`) {
		out.FromRevision = r.number("")
	}
	if r.found(`,"score":`) {
		out.Score = r.scores()
	}
	r.raw("}")
	if !r.plain || r.rest != "" {
		return false
	}
	*p = out
	return true
}

// AppendRecord appends the alloc's JSON; false when it is not plain.
func (a Alloc) AppendRecord(b []byte) ([]byte, bool) {
	w := recordWriter{b: b, plain: true}
	w.text(`{"node":`, string(a.Node))
	w.raw("}")
	if !w.plain {
		return b, false
	}
	return w.b, true
}

// ParseRecord reads what AppendRecord has written; false for anything else.
func (a *Alloc) ParseRecord(b []byte) bool {
	r := recordReader{rest: string(b), plain: true}
	node := NodeID(r.text(`{"node":`))
	r.raw("}")
	if !r.plain || r.rest != "" {
		return false
	}
	*a = Alloc{Node: node}
	return true
}

// Blank is how a damaged alloc is read: as one that names no node.
func (a *Alloc) Blank() { *a = Alloc{} }

// recordWriter appends JSON as long as it is plain.
type recordWriter struct {
	b     []byte
	plain bool
}

func (w *recordWriter) raw(s string) { w.b = append(w.b, s...) }

func (w *recordWriter) text(name, s string) {
	for i := range len(s) {
		if !plainByte(s[i]) {
			w.plain = false
		}
	}
	w.b = append(append(append(append(w.b, name...), '"'), s...), '"')
}

// plainByte reports whether encoding/json writes a byte of a string as it is.
func plainByte(c byte) bool {
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

func (w *recordWriter) number(name string, v int64) {
	w.b = strconv.AppendInt(append(w.b, name...), v, 10)
}

func (w *recordWriter) scores(name string, s Scores) {
	if s == "" {
		return
	}
	r := recordReader{rest: string(s), plain: true}
	r.scores()
	w.plain = w.plain && r.plain && r.rest == ""
	w.b = append(append(w.b, name...), s...)
}

func (w *recordWriter) time(name string, t time.Time) {
	w.raw(name)
	text, err := t.MarshalJSON()
	w.plain = w.plain && err == nil
	w.b = append(w.b, text...)
}

func appendMap[V any](w *recordWriter, name string, m map[string]V, value func(V)) {
	if len(m) == 0 {
		return
	}
	w.raw(name)
	var buf [16]string
	keys := buf[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	separator := "{"
	for _, k := range keys {
		w.text(separator, k)
		w.raw(":")
		value(m[k])
		separator = ","
	}
	w.raw("}")
}

// recordReader reads JSON as long as it is plain.
type recordReader struct {
	rest  string
	plain bool
}

// found takes a word, if it is next.
func (r *recordReader) found(word string) bool {
	rest, ok := strings.CutPrefix(r.rest, word)
	if ok {
		r.rest = rest
	}
	return ok
}

func (r *recordReader) raw(word string) {
	if !r.found(word) {
		r.plain, r.rest = false, ""
	}
}

func (r *recordReader) text(name string) string {
	r.raw(name)
	r.raw(`"`)
	for i := range len(r.rest) {
		switch c := r.rest[i]; {
		case c == '"':
			s := r.rest[:i]
			r.rest = r.rest[i+1:]
			return s
		case !plainByte(c):
			r.plain, r.rest = false, ""
			return ""
		}
	}
	r.plain, r.rest = false, ""
	return ""
}

// digits takes a number's digits, without a needless zero in front.
func (r *recordReader) digits() string {
	n := 0
	for n < len(r.rest) && r.rest[n] >= '0' && r.rest[n] <= '9' {
		n++
	}
	s := r.rest[:n]
	if n == 0 || n > 1 && s[0] == '0' {
		r.plain, r.rest = false, ""
		return ""
	}
	r.rest = r.rest[n:]
	return s
}

func (r *recordReader) number(name string) int64 {
	r.raw(name)
	whole := r.rest
	r.found("-")
	r.digits()
	v, err := strconv.ParseInt(whole[:len(whole)-len(r.rest)], 10, 64)
	if err != nil {
		r.plain = false
	}
	return v
}

// maxFraction is how long a number may be that is sure to fit.
const maxFraction = 64

// scores takes an object of numbers as it stands.
func (r *recordReader) scores() Scores {
	whole := r.rest
	r.raw("{")
	for !r.found("}") && r.plain {
		r.text("")
		r.raw(":")
		r.fraction()
		if !strings.HasPrefix(r.rest, "}") {
			r.raw(",")
			r.plain = r.plain && !strings.HasPrefix(r.rest, "}")
		}
	}
	return Scores(whole[:len(whole)-len(r.rest)])
}

// fraction takes a number.
func (r *recordReader) fraction() {
	left := len(r.rest)
	r.found("-")
	r.digits()
	if r.found(".") {
		for r.found("0") { // digits takes no needless zero in front
			if r.rest == "" || r.rest[0] < '0' || r.rest[0] > '9' {
				return
			}
		}
		r.digits()
	}
	r.plain = r.plain && left-len(r.rest) <= maxFraction
}

func (r *recordReader) time(name string) (t time.Time) {
	if err := t.UnmarshalText([]byte(r.text(name))); err != nil {
		r.plain = false
	}
	return t
}

func parseMap[V any](r *recordReader, name string, value func() V) map[string]V {
	if !r.found(name) {
		return nil
	}
	m := make(map[string]V, 8)
	r.raw("{")
	for r.plain {
		k := r.text("")
		r.raw(":")
		m[k] = value()
		if !r.found(",") {
			break
		}
	}
	r.raw("}")
	return m
}
