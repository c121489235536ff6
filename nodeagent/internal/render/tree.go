package render

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// The tags of values, in all formats.
const (
	tagMap    = "!!map"
	tagSeq    = "!!seq"
	tagString = "!!str"
	tagInt    = "!!int"
	tagFloat  = "!!float"
	tagBool   = "!!bool"
	tagNull   = "!!null"
	tagMerge  = "!!merge"
)

// A file's structure is a tree of YAML's nodes, whatever its format: mappings keep
// the order of their keys, scalars their text, and comments stay with what they are of.

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Tag: tagMap} }

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// budget counts values against maxValues.
type budget int

func (b *budget) take(depth int) error {
	*b++
	switch {
	case depth > maxDepth:
		return errs.New(errs.Invalid, "is nested more than %d deep", maxDepth)
	case *b > maxValues:
		return errs.New(errs.Invalid, "holds more than %d values, its aliases expanded", maxValues)
	}
	return nil
}

// find is the index of a key's value in a mapping; -1 when it is not there. Of a key
// given twice the last counts.
func find(m *yaml.Node, key string) int {
	for i := len(m.Content) - 2; i >= 0; i -= 2 {
		if identity(m.Content[i]) == key {
			return i + 1
		}
	}
	return -1
}

// identity is equal for nodes that mean the same, apart from the order of mappings.
func identity(n *yaml.Node) string {
	var b strings.Builder
	identify(&b, n)
	return b.String()
}

func identify(b *strings.Builder, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		b.WriteString(n.ShortTag())
		b.WriteString(strconv.Quote(n.Value))
		return
	}
	b.WriteString(strconv.Itoa(int(n.Kind)))
	b.WriteByte('[')
	for _, c := range n.Content {
		identify(b, c)
		b.WriteByte(',')
	}
	b.WriteByte(']')
}

// means reports whether two nodes are the same value, however they are written: mappings in
// any order, numbers with any zeros.
func means(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) {
		return false
	}
	switch a.Kind {
	case yaml.MappingNode:
		at := make(map[string]*yaml.Node, len(b.Content)/2)
		for i := 0; i+1 < len(b.Content); i += 2 {
			at[identity(b.Content[i])] = b.Content[i+1]
		}
		for i := 0; i+1 < len(a.Content); i += 2 {
			if v, ok := at[identity(a.Content[i])]; !ok || !means(a.Content[i+1], v) {
				return false
			}
		}
		return true
	case yaml.SequenceNode:
		for i := range a.Content {
			if !means(a.Content[i], b.Content[i]) {
				return false
			}
		}
		return true
	case yaml.ScalarNode, yaml.AliasNode, yaml.DocumentNode:
	}
	switch tag := a.ShortTag(); {
	case tag != b.ShortTag():
		return false
	case tag == tagNull:
		return true
	case tag == tagFloat:
		x, errX := strconv.ParseFloat(a.Value, 64)
		y, errY := strconv.ParseFloat(b.Value, 64)
		return a.Value == b.Value || errX == nil && errY == nil && x == y
	}
	return a.Value == b.Value
}

// overlay lays over on base: mappings are merged by key, all else is replaced. base
// may be changed and over become part of the result. Either may be nil, an empty file.
func overlay(base, over *yaml.Node) *yaml.Node {
	switch {
	case over == nil:
		return base
	case base == nil || base.Kind != yaml.MappingNode || over.Kind != yaml.MappingNode:
		return over
	}
	at := make(map[string]int, len(base.Content)/2)
	for i := 0; i+1 < len(base.Content); i += 2 {
		at[identity(base.Content[i])] = i + 1
	}
	for i := 0; i+1 < len(over.Content); i += 2 {
		key, value := over.Content[i], over.Content[i+1]
		id := identity(key)
		if j, ok := at[id]; ok {
			base.Content[j] = overlay(base.Content[j], value)
			continue
		}
		base.Content = append(base.Content, key, value)
		at[id] = len(base.Content) - 1
	}
	return base
}
