package render

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// tagTime is of TOML's dates and times, which stay as they were written.
const tagTime = "!time"

// readTOML reads a file; an empty one is an empty mapping. Comments are lost, and
// keys come in their own order, because the library keeps neither.
func readTOML(content []byte) (*yaml.Node, error) {
	if nestedTOML(content) {
		return nil, errs.New(errs.Invalid, "is nested more than %d deep", maxDepth)
	}
	var values map[string]any
	if err := toml.Unmarshal(content, &values); err != nil {
		return nil, errs.New(errs.Invalid, "is no TOML: %v", err)
	}
	var b budget
	return fromTOML(&b, values, 0)
}

// nestedTOML reports whether a file may be nested so deep that reading it would not
// end well: the library goes down as far as there are brackets and dots.
func nestedTOML(content []byte) bool {
	open, dots := 0, 0
	for _, c := range content {
		switch c {
		case '[', '{':
			open, dots = open+1, 0
		case ']', '}':
			open, dots = max(open-1, 0), 0
		case '.':
			dots++
		case '=', ',', '\n':
			dots = 0
		}
		if open > 100*maxDepth || dots > 10*maxDepth {
			return true
		}
	}
	return false
}

func fromTOML(b *budget, v any, depth int) (*yaml.Node, error) {
	if err := b.take(depth); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		out := mapping()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			value, err := fromTOML(b, v[k], depth+1)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, scalar(tagString, k), value)
		}
		return out, nil
	case []any:
		out := &yaml.Node{Kind: yaml.SequenceNode, Tag: tagSeq}
		for _, e := range v {
			value, err := fromTOML(b, e, depth+1)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, value)
		}
		return out, nil
	case string:
		return scalar(tagString, v), nil
	case int64:
		return scalar(tagInt, strconv.FormatInt(v, 10)), nil
	case float64:
		return scalar(tagFloat, strconv.FormatFloat(v, 'g', -1, 64)), nil
	case bool:
		return scalar(tagBool, strconv.FormatBool(v)), nil
	case time.Time:
		return scalar(tagTime, v.Format(time.RFC3339Nano)), nil
	case fmt.Stringer: // the library's dates and times without a zone
		return scalar(tagTime, v.String()), nil
	}
	return nil, errs.New(errs.Invalid, "holds a %T, which is not known here", v)
}

// writeTOML writes a file. Invalid for what TOML cannot hold: null, and anything but
// a mapping as the whole.
func writeTOML(root *yaml.Node) ([]byte, error) {
	if root.Kind != yaml.MappingNode {
		return nil, errs.New(errs.Invalid, "would not be a table any more, which TOML must be")
	}
	values, err := toTOML(root)
	if err != nil {
		return nil, err
	}
	out, err := toml.Marshal(values)
	if err != nil {
		return nil, errs.New(errs.Invalid, "cannot be written as TOML: %v", err)
	}
	if back, err := readTOML(out); err != nil || identity(sorted(back)) != identity(sorted(root)) {
		return nil, errs.New(errs.Invalid, "holds what cannot be written as TOML again")
	}
	return out, nil
}

func toTOML(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := toTOML(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out[n.Content[i].Value] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := toTOML(c)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.ScalarNode, yaml.AliasNode, yaml.DocumentNode:
	}
	return scalarTOML(n)
}

func scalarTOML(n *yaml.Node) (any, error) {
	switch n.Tag {
	case tagString:
		return n.Value, nil
	case tagBool:
		return n.Value == "true", nil
	case tagInt:
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			return nil, errs.New(errs.Invalid, "holds a number that TOML cannot hold")
		}
		return v, nil
	case tagFloat:
		v, err := strconv.ParseFloat(n.Value, 64)
		if err != nil && !math.IsInf(v, 0) {
			return nil, errs.New(errs.Invalid, "holds a number that TOML cannot hold")
		}
		return v, nil
	case tagTime:
		var v struct{ V any }
		if err := toml.Unmarshal([]byte("V = "+n.Value), &v); err != nil {
			return nil, errs.New(errs.Invalid, "holds a time that TOML cannot hold")
		}
		return v.V, nil
	}
	return nil, errs.New(errs.Invalid, "TOML knows no null")
}

// sorted is a tree whose mappings are in order of their keys and whose numbers are
// written in one way.
func sorted(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = nil
	switch n.Kind {
	case yaml.MappingNode:
		at := map[string]*yaml.Node{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			at[n.Content[i].Value] = n.Content[i+1]
		}
		for _, k := range slices.Sorted(maps.Keys(at)) {
			out.Content = append(out.Content, scalar(tagString, k), sorted(at[k]))
		}
	case yaml.SequenceNode:
		for _, c := range n.Content {
			out.Content = append(out.Content, sorted(c))
		}
	case yaml.ScalarNode:
		if v, err := strconv.ParseFloat(n.Value, 64); n.Tag == tagFloat && (err == nil || math.IsInf(v, 0)) {
			out.Value = strconv.FormatFloat(v, 'g', -1, 64)
		}
	case yaml.AliasNode, yaml.DocumentNode:
	}
	return &out
}
