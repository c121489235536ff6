package render

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// readYAML reads one document; nil for an empty file. It resolves anchors.
func readYAML(content []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil //nolint:nilnil // an empty file has no value
		}
		return nil, errs.New(errs.Invalid, "is not valid YAML: %v", err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errs.New(errs.Invalid, "has several YAML documents, but must have one")
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, nil //nolint:nilnil // nothing but comments
	}
	var b budget
	root, err := expand(&b, doc.Content[0], 0)
	if err != nil {
		return nil, err
	}
	if root.Kind == yaml.ScalarNode && root.ShortTag() == tagNull && root.Value == "" {
		return nil, nil //nolint:nilnil // nothing but comments
	}
	if root.HeadComment == "" {
		root.HeadComment = doc.HeadComment
	}
	if root.FootComment == "" {
		root.FootComment = doc.FootComment
	}
	return root, nil
}

// expand copies a node with aliases and merge keys resolved.
func expand(b *budget, n *yaml.Node, depth int) (*yaml.Node, error) {
	if err := b.spend(depth); err != nil {
		return nil, err
	}
	if n.Kind == yaml.AliasNode {
		out, err := expand(b, n.Alias, depth+1)
		if out != nil {
			out.HeadComment, out.LineComment, out.FootComment = n.HeadComment, n.LineComment, n.FootComment
		}
		return out, err
	}
	out := *n
	out.Anchor, out.Content = "", make([]*yaml.Node, 0, len(n.Content))
	for _, c := range n.Content {
		child, err := expand(b, c, depth+1)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, child)
	}
	if out.Kind == yaml.MappingNode {
		if err := resolveKeys(&out); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// resolveKeys resolves a mapping's merge keys, and keeps the last value of duplicate keys.
func resolveKeys(m *yaml.Node) error {
	own := m.Content
	m.Content = make([]*yaml.Node, 0, len(own))
	at := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(own); i += 2 {
		key, value := own[i], own[i+1]
		if key.Kind == yaml.ScalarNode && key.ShortTag() == tagMerge {
			merged = append(merged, value)
			continue
		}
		id := canonical(key)
		if j, twice := at[id]; twice {
			m.Content[j] = value
			continue
		}
		m.Content = append(m.Content, key, value)
		at[id] = len(m.Content) - 1
	}
	for _, from := range merged {
		if err := inherit(m, at, from); err != nil {
			return err
		}
	}
	return nil
}

// inherit adds the entries of a merge key's mappings that the mapping does not have.
func inherit(m *yaml.Node, at map[string]int, from *yaml.Node) error {
	switch from.Kind {
	case yaml.SequenceNode:
		for _, one := range from.Content {
			if one.Kind != yaml.MappingNode {
				return errs.New(errs.Invalid, "is not valid YAML: line %d: << must name mappings", from.Line)
			}
			if err := inherit(m, at, one); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(from.Content); i += 2 {
			id := canonical(from.Content[i])
			if _, have := at[id]; have {
				continue
			}
			m.Content = append(m.Content, from.Content[i], from.Content[i+1])
			at[id] = len(m.Content) - 1
		}
	case yaml.DocumentNode, yaml.ScalarNode, yaml.AliasNode:
		return errs.New(errs.Invalid, "is not valid YAML: line %d: << must name mappings", from.Line)
	}
	return nil
}

// writeYAML writes a document. It drops comments and styles if the result would not parse to
// the same value.
func writeYAML(root *yaml.Node) ([]byte, error) {
	want := canonical(root)
	for _, n := range []func() *yaml.Node{func() *yaml.Node { return root }, func() *yaml.Node { return withoutStyle(root) }} {
		out, err := encodeYAML(n())
		if err != nil {
			continue
		}
		if back, err := readYAML(out); err == nil && back != nil && canonical(back) == want {
			return out, nil
		}
	}
	return nil, errs.New(errs.Invalid, "has content that cannot be written as YAML")
}

func encodeYAML(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	err := enc.Close()
	return b.Bytes(), err
}

// withoutStyle returns a tree without comments and styles, with quoted strings.
func withoutStyle(n *yaml.Node) *yaml.Node {
	out := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == tagString {
		out.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		out.Content = append(out.Content, withoutStyle(c))
	}
	return out
}
