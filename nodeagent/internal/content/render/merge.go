package render

import (
	"bytes"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

// Layer is one template's version of a file.
type Layer struct {
	// Template is the template's name, for error messages.
	Template string
	Content  []byte
}

// Merge merges several layers' versions of a file. It merges mappings key by key; other values
// of a later layer replace earlier ones. If all layers are equal, the result has the same
// bytes. It returns Invalid, with file and template, for an unknown format and for content
// that does not have its format.
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
		if err := checkReadable(l.Content); err != nil {
			return nil, invalidFile(name, "the version of template %s %s", l.Template, errs.MessageOf(err))
		}
	}
	base := readProperties(layers[0].Content)
	for _, l := range layers[1:] {
		base.overlay(readProperties(l.Content))
	}
	return base.bytes(), nil
}

// mergeTrees merges by structure. If a file cannot be parsed because of a placeholder, such as
// JSON with `"port": %PORT%`, it replaces placeholders by numbers during the merge.
func mergeTrees(name string, layers []Layer) ([]byte, error) {
	out, err := mergeWithMarkers(name, layers, markers{})
	if err == nil {
		return out, nil
	}
	m := markersFor(layers)
	if len(m.of) == 0 {
		return nil, err
	}
	if out, errMarkers := mergeWithMarkers(name, layers, m); errMarkers == nil {
		return m.unmark(out), nil
	}
	return nil, err
}

// markersFor returns markers for all placeholders in the layers.
func markersFor(layers []Layer) markers {
	names := map[string]string{}
	var all bytes.Buffer
	for _, l := range layers {
		_, unknown := configfile.Substitute(string(l.Content), func(string) (string, bool) { return "", false })
		for _, n := range unknown {
			names[n] = ""
		}
		all.Write(l.Content)
		all.WriteByte('\n')
	}
	return newMarkers(names, all.Bytes())
}

func mergeWithMarkers(name string, layers []Layer, m markers) ([]byte, error) {
	var tree *yaml.Node
	for _, l := range layers {
		var err error
		if tree, err = overlayLayer(name, tree, l, m); err != nil {
			return nil, err
		}
	}
	if tree == nil { // nothing but comments
		return layers[len(layers)-1].Content, nil
	}
	return writeStable(name, tree, layers, m)
}

// overlayLayer parses a layer and merges it over a tree.
func overlayLayer(name string, tree *yaml.Node, l Layer, m markers) (*yaml.Node, error) {
	over, err := read(FormatOf(name), m.mark(l.Content))
	if err == nil && m.damaged(over) {
		err = errs.New(errs.Invalid, "has a placeholder inside a number or an escape sequence")
	}
	if err != nil {
		return nil, invalidFile(name, "the version of template %s %s", l.Template, errs.MessageOf(err))
	}
	return overlay(tree, over), nil
}

// maxRounds limits how often writeStable repeats the merge.
const maxRounds = 4

// writeStable writes a merged tree such that merging the last layer again changes nothing. YAML
// needs this because the parser may attach a comment to another node than it was written at.
func writeStable(name string, tree *yaml.Node, layers []Layer, m markers) (out []byte, err error) {
	last := layers[len(layers)-1]
	for range maxRounds {
		next, err := write(FormatOf(name), tree)
		if err != nil {
			return nil, invalidFile(name, "the merge of %d templates %s", len(layers), errs.MessageOf(err))
		}
		if bytes.Equal(next, out) || FormatOf(name) != FormatYAML {
			return next, nil
		}
		out = next
		if tree, err = read(FormatYAML, out); err != nil {
			return nil, invalidFile(name, "the merge of %d templates %s", len(layers), errs.MessageOf(err))
		}
		if tree, err = overlayLayer(name, tree, last, m); err != nil || tree == nil {
			return out, err
		}
	}
	return out, nil
}

// Words returns the unescaped keys and scalar values of a file; none if the file has no
// known structure or cannot be parsed.
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

// checkReadable rejects content that is not text or too large to parse.
func checkReadable(content []byte) error {
	switch {
	case len(content) > MaxStructured:
		return errs.New(errs.Invalid, "is larger than %d MiB", MaxStructured>>20)
	case !utf8.Valid(content):
		return errs.New(errs.Invalid, "is not valid UTF-8")
	}
	return nil
}

// read parses a file; nil if it is empty.
func read(format Format, content []byte) (*yaml.Node, error) {
	if err := checkReadable(content); err != nil {
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
	return nil, errs.New(errs.Invalid, "has no known structure: its name must end with .yml, .yaml, .json, .toml or .properties")
}

// write formats a tree.
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
