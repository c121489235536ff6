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

// tagTime is the tag of TOML's dates and times, which keep their text.
const tagTime = "!time"

// readTOML reads a file; an empty one is an empty mapping. It drops comments and sorts keys,
// because the library keeps neither.
func readTOML(content []byte) (*yaml.Node, error) {
	if nestedTOML(content) {
		return nil, errs.New(errs.Invalid, "is nested more than %d deep", maxDepth)
	}
	var values map[string]any
	if err := toml.Unmarshal(content, &values); err != nil {
		return nil, errs.New(errs.Invalid, "is not valid TOML: %v", err)
	}
	var b budget
	return fromTOML(&b, values, 0)
}

// nestedTOML reports whether a file may be nested too deeply. The library recurses for each
// bracket and dot without a limit.
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
	if err := b.spend(depth); err != nil {
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
	case fmt.Stringer: // the library's local dates and times
		return scalar(tagTime, v.String()), nil
	}
	return nil, errs.New(errs.Invalid, "has a value of the unsupported type %T", v)
}

// writeTOML writes a file. It returns Invalid for what TOML cannot hold: null, and anything but
// a mapping at the top.
func writeTOML(root *yaml.Node) ([]byte, error) {
	if root.Kind != yaml.MappingNode {
		return nil, errs.New(errs.Invalid, "would not be a table, which TOML requires at the top")
	}
	values, err := toTOML(root)
	if err != nil {
		return nil, err
	}
	out, err := toml.Marshal(values)
	if err != nil {
		return nil, errs.New(errs.Invalid, "cannot be written as TOML: %v", err)
	}
	if back, err := readTOML(out); err != nil || canonical(sorted(back)) != canonical(sorted(root)) {
		return nil, errs.New(errs.Invalid, "has content that cannot be written as TOML")
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
			return nil, errs.New(errs.Invalid, "has a number out of TOML's range")
		}
		return v, nil
	case tagFloat:
		v, err := strconv.ParseFloat(n.Value, 64)
		if err != nil && !math.IsInf(v, 0) {
			return nil, errs.New(errs.Invalid, "has a number out of TOML's range")
		}
		return v, nil
	case tagTime:
		var v struct{ V any }
		if err := toml.Unmarshal([]byte("V = "+n.Value), &v); err != nil {
			return nil, errs.New(errs.Invalid, "has a time that TOML cannot hold")
		}
		return v.V, nil
	}
	return nil, errs.New(errs.Invalid, "has null, which TOML does not support")
}

// sorted returns a tree with sorted keys and uniformly formatted numbers, for comparison.
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
