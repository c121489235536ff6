package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// maxDepth bounds how deep values may be nested.
const maxDepth = 100

// jsonReader reads JSON and remembers where each value is.
type jsonReader struct {
	file    string
	content []byte
	decoder *json.Decoder
	// line and column are the position of offset.
	offset int64
	place
}

// parseJSON returns the values in content, one after another.
func parseJSON(file string, content []byte) ([]*node, error) {
	r := &jsonReader{file: file, content: content, decoder: json.NewDecoder(bytes.NewReader(content)), place: place{1, 1}}
	r.decoder.UseNumber()
	var values []*node
	for {
		value, err := r.value(0)
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, r.explain(err)
		}
		values = append(values, value)
	}
}

// explain returns an error with a position.
func (r *jsonReader) explain(err error) error {
	var known *Error
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &syntax):
		return errorAt(r.file, r.moveTo(max(syntax.Offset-1, r.offset)), "%s", syntax.Error())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errorAt(r.file, r.moveTo(int64(len(r.content))), "the document ends too early: a bracket or a quote is not closed")
	}
	return errorAt(r.file, r.place, "%s", err.Error())
}

// moveTo returns the position of an offset at or after the current one.
func (r *jsonReader) moveTo(offset int64) place {
	for r.offset < min(offset, int64(len(r.content))) {
		c, size := utf8.DecodeRune(r.content[r.offset:])
		r.offset += int64(size)
		r.column++
		if c == '\n' {
			r.line, r.column = r.line+1, 1
		}
	}
	return r.place
}

// next returns the next token and where it begins.
func (r *jsonReader) next() (json.Token, place, error) {
	begin := r.decoder.InputOffset()
	for begin < int64(len(r.content)) && bytes.IndexByte([]byte(" \t\r\n,:"), r.content[begin]) >= 0 {
		begin++
	}
	at := r.moveTo(begin)
	token, err := r.decoder.Token()
	return token, at, err
}

func (r *jsonReader) value(depth int) (*node, error) {
	token, at, err := r.next()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errorAt(r.file, at, "values are nested deeper than %d", maxDepth)
	}
	switch token {
	case json.Delim('{'):
		return r.object(at, depth)
	case json.Delim('['):
		return r.list(at, depth)
	}
	return &node{place: at, scalar: token}, nil
}

func (r *jsonReader) object(at place, depth int) (*node, error) {
	n := &node{place: at, shape: objectShape}
	seen := map[string]place{}
	for r.decoder.More() {
		token, nameAt, err := r.next()
		if err != nil {
			return nil, inside(err)
		}
		name, _ := token.(string) // the decoder accepts no other key
		if err := once(r.file, seen, name, nameAt); err != nil {
			return nil, err
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, inside(err)
		}
		n.fields = append(n.fields, field{place: nameAt, name: name, value: value})
	}
	_, _, err := r.next()
	return n, inside(err)
}

func (r *jsonReader) list(at place, depth int) (*node, error) {
	n := &node{place: at, shape: listShape}
	for r.decoder.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, inside(err)
		}
		n.items = append(n.items, item)
	}
	_, _, err := r.next()
	return n, inside(err)
}

// inside returns the error of a read inside a value, where the input must not end.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// once returns an error if a name was seen before in the same object.
func once(file string, seen map[string]place, name string, at place) error {
	if first, again := seen[name]; again {
		return errorAt(file, at, "%s is set twice, first in line %d", name, first.line)
	}
	seen[name] = at
	return nil
}
