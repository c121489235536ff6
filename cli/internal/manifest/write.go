package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/kinds"
	"go.yaml.in/yaml/v4"
)

// YAML returns the document as YAML, with the fields in the order of the API.
func (d *Document) YAML() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, value any) {
		root.Content = append(root.Content, text(name), yamlNode(value))
	}
	add("kind", d.Kind)
	add("name", d.Name)
	kind := d.Object()
	order := kind.Writable()
	names := slices.SortedFunc(maps.Keys(d.Fields), func(a, b string) int {
		if i, j := slices.Index(order, a), slices.Index(order, b); i != j {
			return i - j
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		add(fieldInDocument(kind, name), d.Fields[name])
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("%s cannot be written as YAML: %w", d, err)
	}
	return out.Bytes(), encoder.Close()
}

// JSON returns the document as JSON on one line.
func (d *Document) JSON() ([]byte, error) {
	out := map[string]any{}
	for name, value := range d.Fields {
		out[fieldInDocument(d.Object(), name)] = value
	}
	out["kind"], out["name"] = d.Kind, d.Name
	return json.Marshal(out)
}

func text(value string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	if strings.Contains(value, "\n") {
		n.Style = yaml.LiteralStyle
	}
	return n
}

// yamlNode returns a value as JSON decodes it.
func yamlNode(value any) *yaml.Node {
	switch v := value.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, text(name), yamlNode(v[name]))
		}
		return compact(n)
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n.Content = append(n.Content, yamlNode(item))
		}
		return compact(n)
	case string:
		return text(v)
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}
	case json.Number:
		if decimal().MatchString(v.String()) {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: v.String()}
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: v.String()}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
}

// compact writes an empty object or list as {} or [].
func compact(n *yaml.Node) *yaml.Node {
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	return n
}

// FieldNames returns the names of the fields that documents of a kind may have, in the order of the
// API.
func FieldNames(kind *kinds.Kind) []string {
	var names []string
	for _, name := range kind.Writable() {
		if name != kind.NameField {
			names = append(names, fieldInDocument(kind, name))
		}
	}
	return names
}
