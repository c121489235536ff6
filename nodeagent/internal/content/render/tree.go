package render

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// The tags of values. All formats are parsed into YAML nodes, which keep the order of keys,
// the text of scalars, and comments.
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

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Tag: tagMap} }

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// budget counts parsed values up to maxValues.
type budget int

func (b *budget) spend(depth int) error {
	*b++
	switch {
	case depth > maxDepth:
		return errs.New(errs.Invalid, "is nested more than %d deep", maxDepth)
	case *b > maxValues:
		return errs.New(errs.Invalid, "has more than %d values with aliases expanded", maxValues)
	}
	return nil
}

// find returns the index of a key's value in a mapping; -1 if it is missing. The last of
// duplicate keys counts.
func find(m *yaml.Node, key string) int {
	for i := len(m.Content) - 2; i >= 0; i -= 2 {
		if canonical(m.Content[i]) == key {
			return i + 1
		}
	}
	return -1
}

// canonical returns a text that is equal for equal nodes with the same order of keys.
func canonical(n *yaml.Node) string {
	var b strings.Builder
	writeCanonical(&b, n)
	return b.String()
}

func writeCanonical(b *strings.Builder, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		b.WriteString(n.ShortTag())
		b.WriteString(strconv.Quote(n.Value))
		return
	}
	b.WriteString(strconv.Itoa(int(n.Kind)))
	b.WriteByte('[')
	for _, c := range n.Content {
		writeCanonical(b, c)
		b.WriteByte(',')
	}
	b.WriteByte(']')
}

// sameValue reports whether two nodes are equal, regardless of the order of keys and the
// notation of floats.
func sameValue(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) {
		return false
	}
	switch a.Kind {
	case yaml.MappingNode:
		at := make(map[string]*yaml.Node, len(b.Content)/2)
		for i := 0; i+1 < len(b.Content); i += 2 {
			at[canonical(b.Content[i])] = b.Content[i+1]
		}
		for i := 0; i+1 < len(a.Content); i += 2 {
			if v, ok := at[canonical(a.Content[i])]; !ok || !sameValue(a.Content[i+1], v) {
				return false
			}
		}
		return true
	case yaml.SequenceNode:
		for i := range a.Content {
			if !sameValue(a.Content[i], b.Content[i]) {
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

// overlay merges over into base: mappings by key; other values are replaced. It may change
// base, and the result may contain parts of over. Either may be nil, for an empty file.
func overlay(base, over *yaml.Node) *yaml.Node {
	switch {
	case over == nil:
		return base
	case base == nil || base.Kind != yaml.MappingNode || over.Kind != yaml.MappingNode:
		return over
	}
	at := make(map[string]int, len(base.Content)/2)
	for i := 0; i+1 < len(base.Content); i += 2 {
		at[canonical(base.Content[i])] = i + 1
	}
	for i := 0; i+1 < len(over.Content); i += 2 {
		key, value := over.Content[i], over.Content[i+1]
		id := canonical(key)
		if j, ok := at[id]; ok {
			base.Content[j] = overlay(base.Content[j], value)
			continue
		}
		base.Content = append(base.Content, key, value)
		at[id] = len(base.Content) - 1
	}
	return base
}
