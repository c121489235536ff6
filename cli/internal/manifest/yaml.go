package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

// maxAliasNodes bounds how many values the aliases of an input may repeat.
const maxAliasNodes = 100_000

// yamlReader converts YAML with the core schema of YAML 1.2.
type yamlReader struct {
	file string
	// aliasNodes counts the values that aliases repeated, and aliases the aliases that are being
	// followed.
	aliasNodes, aliases int
}

// parseYAML returns the values in content, which --- separates. Empty ones are left out.
func parseYAML(file string, content []byte) ([]*node, error) {
	r := &yamlReader{file: file}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var values []*node
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, r.explain(err)
		}
		value, err := r.value(&document, 0)
		if err != nil {
			return nil, err
		}
		if value != nil && (value.shape != scalarShape || value.scalar != nil) {
			values = append(values, value)
		}
	}
}

func (r *yamlReader) explain(err error) error {
	var load *yaml.LoadError
	if errors.As(err, &load) {
		return errorAt(r.file, place{max(load.Mark.Line, 1), max(load.Mark.Column, 1)}, "%s", load.Message)
	}
	return &Error{Position: Position{File: r.file}, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
}

func placeOf(n *yaml.Node) place { return place{max(n.Line, 1), max(n.Column, 1)} }

func (r *yamlReader) value(n *yaml.Node, depth int) (*node, error) {
	at := placeOf(n)
	if depth > maxDepth {
		return nil, errorAt(r.file, at, "values are nested deeper than %d", maxDepth)
	}
	if r.aliases > 0 {
		if r.aliasNodes++; r.aliasNodes > maxAliasNodes {
			return nil, errorAt(r.file, at, "the aliases repeat more than %d values", maxAliasNodes)
		}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil, nil
		}
		return r.value(n.Content[0], depth)
	case yaml.AliasNode:
		r.aliases++
		value, err := r.value(n.Alias, depth+1)
		r.aliases--
		return value, err
	case yaml.MappingNode:
		return r.object(n, depth)
	case yaml.SequenceNode:
		return r.list(n, depth)
	case yaml.ScalarNode:
		scalar, err := r.scalar(n)
		return &node{place: at, scalar: scalar}, err
	default:
		return nil, nil // an empty stream
	}
}

func (r *yamlReader) list(n *yaml.Node, depth int) (*node, error) {
	out := &node{place: placeOf(n), shape: listShape}
	for _, content := range n.Content {
		item, err := r.value(content, depth+1)
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, item)
	}
	return out, nil
}

// mergeKey is the key whose value's fields belong to the object, unless the object sets them itself.
const mergeKey = "<<"

func (r *yamlReader) object(n *yaml.Node, depth int) (*node, error) {
	out := &node{place: placeOf(n), shape: objectShape}
	seen := map[string]place{}
	var merged []*node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			return nil, errorAt(r.file, placeOf(key), "the name of a field must be a text")
		}
		if err := once(r.file, seen, key.Value, placeOf(key)); err != nil {
			return nil, err
		}
		value, err := r.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if key.Value == mergeKey && key.Style == 0 {
			merged = append(merged, value)
			continue
		}
		out.fields = append(out.fields, field{place: placeOf(key), name: key.Value, value: value})
	}
	return out, r.merge(out, merged)
}

// merge adds the fields of merged objects that out lacks. The first object that has a field wins.
func (r *yamlReader) merge(out *node, merged []*node) error {
	for _, from := range merged {
		sources := []*node{from}
		if from.shape == listShape {
			sources = from.items
		}
		for _, source := range sources {
			if source.shape != objectShape {
				return errorAt(r.file, from.place, "%s merges objects only", mergeKey)
			}
			for _, f := range source.fields {
				if out.field(f.name) == nil {
					out.fields = append(out.fields, f)
				}
			}
		}
	}
	return nil
}

var (
	decimal   = lazyregexp.New(`^[-+]?[0-9]+$`)
	octalOr16 = lazyregexp.New(`^0(o[0-7]+|x[0-9a-fA-F]+)$`)
	float     = lazyregexp.New(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	notNumber = lazyregexp.New(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

// scalar returns a scalar of the core schema. Words such as yes and on, and dates, are strings.
func (r *yamlReader) scalar(n *yaml.Node) (any, error) {
	explicit := n.Style&yaml.TaggedStyle != 0
	switch {
	case explicit && n.ShortTag() == "!!str":
		return n.Value, nil
	case explicit:
		return nil, errorAt(r.file, placeOf(n), "the tag %s is not supported", n.ShortTag())
	case n.Style&^yaml.FlowStyle != 0: // quoted, or a block of text
		return n.Value, nil
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return nil, nil
	case "true", "True", "TRUE":
		return true, nil
	case "false", "False", "FALSE":
		return false, nil
	}
	return r.number(n)
}

// number returns the number that a plain scalar is, or its text.
func (r *yamlReader) number(n *yaml.Node) (any, error) {
	text := n.Value
	switch {
	case decimal().MatchString(text):
		digits := strings.TrimLeft(text, "+-")
		if len(digits) > 1 && digits[0] == '0' {
			return nil, errorAt(r.file, placeOf(n), "programs read the number %s differently: write %q for a text, %s for a decimal number, or 0o%s for an octal one",
				text, text, first(strings.TrimLeft(digits, "0"), "0"), first(strings.TrimLeft(digits, "0"), "0"))
		}
		return json.Number(strings.TrimPrefix(text, "+")), nil
	case octalOr16().MatchString(text):
		number, _ := new(big.Int).SetString(text, 0) // the pattern matches only numbers
		return json.Number(number.String()), nil
	case float().MatchString(text):
		return json.Number(jsonFloat(text)), nil
	case notNumber().MatchString(text):
		return nil, errorAt(r.file, placeOf(n), "%s is not a number that the API knows; write %q for a text", text, text)
	}
	return text, nil
}

// jsonFloat returns a number as JSON writes it: 0.5 for .5, 1.0 for 1., 7.5 for +07.5.
func jsonFloat(text string) string {
	sign := ""
	if text[0] == '-' {
		sign = "-"
	}
	text = strings.TrimLeft(strings.TrimLeft(text, "+-"), "0")
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i:]
	}
	whole, fraction, point := strings.Cut(mantissa, ".")
	mantissa = first(whole, "0")
	if point {
		mantissa += "." + first(fraction, "0")
	}
	return sign + mantissa + exponent
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
