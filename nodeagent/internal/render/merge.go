package render

import (
	"bytes"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Layer is what one template brings of a file.
type Layer struct {
	// Template is named where its content cannot be read.
	Template string
	Content  []byte
}

// Merge joins what several layers bring of a file, the later one winning: mappings are
// merged key by key, lists and single values replaced. Layers with equal bytes, and a
// single one, keep them. Invalid for a name without a known format and for content
// that is not of its format, naming file and template.
func Merge(name string, layers []Layer) ([]byte, error) {
	if len(layers) == 0 {
		return nil, nil
	}
	distinct := layers[:1:1]
	for _, l := range layers[1:] {
		if !bytes.Equal(l.Content, distinct[len(distinct)-1].Content) {
			distinct = append(distinct, l)
		}
	}
	if len(distinct) == 1 {
		return distinct[0].Content, nil
	}
	if FormatOf(name) == FormatProperties {
		return mergeProperties(name, distinct)
	}
	return mergeTrees(name, distinct)
}

func mergeProperties(name string, layers []Layer) ([]byte, error) {
	for _, l := range layers {
		if err := readable(l.Content); err != nil {
			return nil, refuse(name, "of template %s %s", l.Template, errs.MessageOf(err))
		}
	}
	base := readProperties(layers[0].Content)
	for _, l := range layers[1:] {
		base.overlay(readProperties(l.Content))
	}
	return base.bytes(), nil
}

// mergeTrees merges by structure. Where a file can only be read once its placeholders are
// values, as "port: %PORT%" of YAML, these are whole numbers meanwhile.
func mergeTrees(name string, layers []Layer) ([]byte, error) {
	out, err := mergeMarked(name, layers, marks{})
	if err == nil {
		return out, nil
	}
	m := marksIn(layers)
	if len(m.of) == 0 {
		return nil, err
	}
	if out, errMarked := mergeMarked(name, layers, m); errMarked == nil {
		return m.unmark(out), nil
	}
	return nil, err
}

// marksIn are marks of all placeholders in some layers.
func marksIn(layers []Layer) marks {
	names := map[string]string{}
	var all bytes.Buffer
	for _, l := range layers {
		_, unknown := fleet.Substitute(string(l.Content), func(string) (string, bool) { return "", false })
		for _, n := range unknown {
			names[n] = ""
		}
		all.Write(l.Content)
		all.WriteByte('\n')
	}
	return newMarks(names, all.Bytes())
}

func mergeMarked(name string, layers []Layer, m marks) ([]byte, error) {
	var tree *yaml.Node
	for _, l := range layers {
		var err error
		if tree, err = lay(name, tree, l, m); err != nil {
			return nil, err
		}
	}
	if tree == nil { // comments at most
		return layers[len(layers)-1].Content, nil
	}
	return settle(name, tree, layers, m)
}

// lay lays what a template brings on a tree.
func lay(name string, tree *yaml.Node, l Layer, m marks) (*yaml.Node, error) {
	over, err := read(FormatOf(name), m.mark(l.Content))
	if err == nil && m.blurred(over) {
		err = errs.New(errs.Invalid, "has a placeholder within a number or an escape")
	}
	if err != nil {
		return nil, refuse(name, "of template %s %s", l.Template, errs.MessageOf(err))
	}
	return overlay(tree, over), nil
}

// rounds bounds how often a merged file is merged again until it stays as it is.
const rounds = 4

// settle writes a merged tree so that nothing changes when the last layer is laid on
// it once more. Of YAML a comment is read at another place than it was written at, such
// as below a value that was emptied: it is written where it is read.
func settle(name string, tree *yaml.Node, layers []Layer, m marks) (out []byte, err error) {
	last := layers[len(layers)-1]
	for range rounds {
		next, err := write(FormatOf(name), tree)
		if err != nil {
			return nil, refuse(name, "merged of %d templates %s", len(layers), errs.MessageOf(err))
		}
		if bytes.Equal(next, out) || FormatOf(name) != FormatYAML {
			return next, nil
		}
		out = next
		if tree, err = read(FormatYAML, out); err != nil {
			return nil, refuse(name, "merged of %d templates %s", len(layers), errs.MessageOf(err))
		}
		if tree, err = lay(name, tree, last, m); err != nil || tree == nil {
			return out, err
		}
	}
	return out, nil
}

// Words are the keys and single values of a file of a known structure as whoever reads it
// gets them, escapes resolved; none where it has no structure or cannot be read.
func Words(name string, content []byte) (words []string) {
	format := FormatOf(name)
	if format == FormatProperties {
		for _, l := range readProperties(content).lines {
			if l.pair {
				words = append(words, l.key, l.value)
			}
		}
		return words
	}
	if format == FormatNone {
		return nil
	}
	root, err := read(format, content)
	if err != nil {
		return nil
	}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n != nil && n.Kind == yaml.ScalarNode {
			words = append(words, n.Value)
		}
		if n != nil {
			for _, c := range n.Content {
				walk(c)
			}
		}
	}
	walk(root)
	return words
}

// readable refuses what is no text, and what is too large to be taken apart.
func readable(content []byte) error {
	switch {
	case len(content) > MaxStructured:
		return errs.New(errs.Invalid, "is larger than %d MiB", MaxStructured>>20)
	case !utf8.Valid(content):
		return errs.New(errs.Invalid, "is no text in UTF-8")
	}
	return nil
}

// read takes a file apart; nil when it holds nothing.
func read(format Format, content []byte) (*yaml.Node, error) {
	if err := readable(content); err != nil {
		return nil, err
	}
	switch format {
	case FormatYAML:
		return readYAML(content)
	case FormatJSON:
		return readJSON(content)
	case FormatTOML:
		return readTOML(content)
	case FormatNone, FormatProperties:
	}
	return nil, errs.New(errs.Invalid, "has no structure that is known here: only .yml, .yaml, .json, .toml and .properties have")
}

// write puts a file together again.
func write(format Format, root *yaml.Node) ([]byte, error) {
	switch format {
	case FormatYAML:
		return writeYAML(root)
	case FormatJSON:
		return writeJSON(root)
	case FormatTOML:
		return writeTOML(root)
	case FormatNone, FormatProperties:
	}
	return nil, errs.New(errs.Internal, "a format without a tree")
}
