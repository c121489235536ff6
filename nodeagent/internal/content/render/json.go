package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// readJSON reads one value; nil for an empty file. It keeps the digits of numbers and the
// order of keys.
func readJSON(content []byte) (*yaml.Node, error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, nil //nolint:nilnil // an empty file has no value
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.UseNumber()
	var b budget
	root, err := jsonValue(dec, &b, 0)
	if err != nil {
		if errs.Is(err, errs.Invalid) {
			return nil, err
		}
		return nil, errs.New(errs.Invalid, "is not valid JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errs.New(errs.Invalid, "is not valid JSON: it has more than one value")
	}
	return root, nil
}

func jsonValue(dec *json.Decoder, b *budget, depth int) (*yaml.Node, error) {
	if err := b.spend(depth); err != nil {
		return nil, err
	}
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			return jsonObject(dec, b, depth)
		}
		return jsonArray(dec, b, depth)
	case string:
		return scalar(tagString, v), nil
	case json.Number:
		tag := tagInt
		if strings.ContainsAny(v.String(), ".eE") {
			tag = tagFloat
		}
		return scalar(tag, v.String()), nil
	case bool:
		if v {
			return scalar(tagBool, "true"), nil
		}
		return scalar(tagBool, "false"), nil
	}
	return scalar(tagNull, "null"), nil
}

func jsonObject(dec *json.Decoder, b *budget, depth int) (*yaml.Node, error) {
	out := mapping()
	at := map[string]int{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // the decoder returns only strings here
		value, err := jsonValue(dec, b, depth+1)
		if err != nil {
			return nil, err
		}
		if i, twice := at[name]; twice {
			out.Content[i] = value
			continue
		}
		out.Content = append(out.Content, scalar(tagString, name), value)
		at[name] = len(out.Content) - 1
	}
	_, err := dec.Token()
	return out, err
}

func jsonArray(dec *json.Decoder, b *budget, depth int) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.SequenceNode, Tag: tagSeq}
	for dec.More() {
		value, err := jsonValue(dec, b, depth+1)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, value)
	}
	_, err := dec.Token()
	return out, err
}

// writeJSON writes a value with an indentation of two spaces and a final newline.
func writeJSON(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	if err := jsonText(&b, root, "\n"); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// jsonText writes one value. indent is a newline and the indentation of the current line.
func jsonText(b *bytes.Buffer, n *yaml.Node, indent string) error {
	open, end, step := byte('['), byte(']'), 1
	switch n.Kind {
	case yaml.MappingNode:
		open, end, step = '{', '}', 2
	case yaml.SequenceNode:
	case yaml.ScalarNode, yaml.AliasNode, yaml.DocumentNode:
		return jsonScalar(b, n)
	}
	b.WriteByte(open)
	for i := 0; i < len(n.Content); i += step {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(indent + "  ")
		if step == 2 {
			if err := jsonScalar(b, n.Content[i]); err != nil {
				return err
			}
			b.WriteString(": ")
		}
		if err := jsonText(b, n.Content[i+step-1], indent+"  "); err != nil {
			return err
		}
	}
	if len(n.Content) > 0 {
		b.WriteString(indent)
	}
	b.WriteByte(end)
	return nil
}

func jsonScalar(b *bytes.Buffer, n *yaml.Node) error {
	if n.Tag != tagString {
		b.WriteString(n.Value)
		return nil
	}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(n.Value); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // removes the encoder's newline
	return nil
}
