package config

import (
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// printYAML writes the effective settings as a file that Load can read, with the source of each
// value as a comment. Secrets are masked.
func (l *layers) printYAML(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range l.schema.settings {
		value, err := yamlNode(l.shown(s))
		if err != nil {
			return fmt.Errorf("config: print %s: %w", s.key, err)
		}
		parent, name := sectionNode(root, s.key)
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		// The comment of a block map must be at its key; other comments are at the value.
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			key.LineComment = l.sources[s.key]
		} else {
			value.LineComment = l.sources[s.key]
		}
		parent.Content = append(parent.Content, key, value)
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return fmt.Errorf("config: print: %w", err)
	}
	return enc.Close()
}

// sectionNode finds or creates the mapping that contains a key, and returns the last word of the
// key.
func sectionNode(root *yaml.Node, key string) (*yaml.Node, string) {
	words := strings.Split(key, ".")
	node := root
	for _, word := range words[:len(words)-1] {
		node = childNode(node, word)
	}
	return node, words[len(words)-1]
}

func childNode(parent *yaml.Node, name string) *yaml.Node {
	for i := 0; i < len(parent.Content); i += 2 {
		if parent.Content[i].Value == name {
			return parent.Content[i+1]
		}
	}
	child := &yaml.Node{Kind: yaml.MappingNode}
	parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, child)
	return child
}

func yamlNode(value any) (*yaml.Node, error) {
	if d, ok := value.(time.Duration); ok {
		value = d.String()
	}
	node := &yaml.Node{}
	if err := node.Encode(value); err != nil {
		return nil, err
	}
	if node.Kind == yaml.SequenceNode {
		node.Style = yaml.FlowStyle
	}
	return node, nil
}
