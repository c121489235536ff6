package render

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Original is what a file of an instance was generated from.
type Original struct {
	// SHA256 is the hash of a file that was copied unchanged; else empty.
	SHA256 string
	// Template is the text from the templates, Rendered the text with placeholders replaced and
	// patches applied. Both are nil for a copied file. Template is nil for a file that only
	// patches describe.
	Template, Rendered []byte
}

// Unrender turns a file that an instance has changed back into a template. Unchanged values
// become those of the template again, with their placeholders, and values that patches
// added are removed. Values that the instance changed stay, but placeholder values inside them
// become placeholders if the template has these.
//
// It compares known formats by their keys, and other files by lines, in any order. The file
// keeps its layout if the comparison by lines is sufficient.
func Unrender(name string, current []byte, of Original, values map[string]string) []byte {
	lines := newLineMap(of, values)
	if FormatOf(name) == FormatProperties && allReadable(current, of.Template, of.Rendered) {
		return unrenderProperties(current, of, values, lines)
	}
	byLines := lines.unrender(current)
	if FormatOf(name) == FormatNone {
		return byLines
	}
	return unrenderTree(FormatOf(name), current, byLines, of, values, lines)
}

func allReadable(all ...[]byte) bool {
	return !slices.ContainsFunc(all, func(b []byte) bool { return checkReadable(b) != nil })
}

// unrenderTree returns the result by structure. It returns byLines if that has the same
// meaning, or if the file cannot be parsed.
func unrenderTree(f Format, current, byLines []byte, of Original, values map[string]string, lines lineMap) []byte {
	m := newMarkers(values, of.Template, current, of.Rendered)
	var trees [4]*yaml.Node
	for i, content := range [][]byte{current, of.Rendered, m.mark(of.Template), m.mark(byLines)} {
		tree, err := read(f, content)
		if err != nil && i < 3 {
			return byLines
		}
		trees[i] = tree
	}
	if trees[0] == nil || m.damaged(trees[2]) {
		return byLines
	}
	aligning := maxAlignCost
	r := unrenderer{values: values, markers: m, lines: lines, aligning: &aligning}
	want := r.node(trees[0], trees[1], trees[2])
	if want == nil {
		want = mapping()
	}
	if trees[3] != nil && sameValue(trees[3], want) {
		return byLines
	}
	out, err := write(f, want)
	if err != nil {
		return byLines
	}
	return m.unmark(out)
}

// unrenderer merges an instance's file with its template.
type unrenderer struct {
	values  map[string]string
	markers markers
	lines   lineMap
	// aligning is the remaining budget of sequence comparisons.
	aligning *int
}

// node returns the current value, or the template's if it is unchanged; nil if a patch added
// the value and it is unchanged.
func (r unrenderer) node(current, made, template *yaml.Node) *yaml.Node {
	switch {
	case current == nil || made == nil:
		return current
	case sameValue(current, made) || sameText(current, made):
		if template != nil && (sameValue(made, template) || sameValue(current, template)) {
			break // equal to the template: the instance's notation stays
		}
		return template
	}
	out := *current
	out.HeadComment, out.LineComment, out.FootComment = r.comment(out.HeadComment), r.comment(out.LineComment), r.comment(out.FootComment)
	if template == nil && current.Kind == yaml.MappingNode {
		template = mapping()
	}
	switch {
	case template == nil || current.Kind != template.Kind || current.Kind != made.Kind:
		return &out
	case current.Kind == yaml.MappingNode:
		r.mapping(&out, made, template)
	case current.Kind == yaml.SequenceNode:
		r.sequence(&out, made, template)
	case current.Kind == yaml.ScalarNode && current.ShortTag() == tagString:
		out.Value = r.markers.reinsert(current.Value, template.Value, r.values)
	}
	return &out
}

func (r unrenderer) mapping(out, made, template *yaml.Node) {
	type pair struct{ key, value *yaml.Node }
	templates := map[string]pair{}
	for i := 0; i+1 < len(template.Content); i += 2 {
		key := *template.Content[i]
		key.Value, _ = Substitute(string(r.markers.unmark([]byte(key.Value))), r.values)
		if key.ShortTag() != tagString || key.Value != template.Content[i].Value {
			key.Tag = "" // its type may be another one now
		}
		templates[keyText(&key)] = pair{template.Content[i], template.Content[i+1]}
	}
	mades := byKey(made)
	content := out.Content
	out.Content = make([]*yaml.Node, 0, len(content))
	for i := 0; i+1 < len(content); i += 2 {
		key, value := *content[i], content[i+1]
		id := keyText(&key)
		from := templates[id]
		if value = r.node(value, mades[id], from.value); value == nil { // a patch added it
			continue
		}
		if from.key != nil && from.key.Kind == yaml.ScalarNode {
			key.Value, key.Tag, key.Style = from.key.Value, from.key.Tag, from.key.Style
		}
		key.HeadComment, key.LineComment, key.FootComment = r.comment(key.HeadComment), r.comment(key.LineComment), r.comment(key.FootComment)
		out.Content = append(out.Content, &key, value)
	}
}

// sequence unrenders the instance's elements, each against the one it was. Added elements stay,
// removed ones stay removed.
func (r unrenderer) sequence(out, made, template *yaml.Node) {
	ofMade := align(out.Content, made.Content, r.aligning)
	ofTemplate := align(made.Content, r.resolved(template).Content, r.aligning)
	paired := len(ofTemplate)
	for _, k := range ofTemplate {
		if k < 0 {
			paired--
		}
	}
	patched := paired == len(template.Content) // then patches added all other elements
	content := out.Content
	out.Content = make([]*yaml.Node, 0, len(content))
	for i, value := range content {
		j := ofMade[i]
		switch {
		case j < 0:
		case ofTemplate[j] >= 0:
			value = r.node(value, made.Content[j], template.Content[ofTemplate[j]])
		case patched && looselyEqual(value, made.Content[j]): // the patch will add it again
			continue
		}
		out.Content = append(out.Content, value)
	}
}

// resolved returns a template's node with its placeholders replaced.
func (r unrenderer) resolved(n *yaml.Node) *yaml.Node {
	out := *n
	if n.Kind == yaml.ScalarNode {
		out.Value, _ = Substitute(string(r.markers.unmark([]byte(n.Value))), r.values)
	}
	out.Content = make([]*yaml.Node, 0, len(n.Content))
	for _, c := range n.Content {
		out.Content = append(out.Content, r.resolved(c))
	}
	return &out
}

// sameText reports whether two scalars have the same text or numeric value, whatever their types.
func sameText(a, b *yaml.Node) bool {
	if a.Kind != yaml.ScalarNode || b.Kind != yaml.ScalarNode || a.ShortTag() == tagNull || b.ShortTag() == tagNull {
		return false
	}
	x, errX := strconv.ParseFloat(a.Value, 64)
	y, errY := strconv.ParseFloat(b.Value, 64)
	return a.Value == b.Value || errX == nil && errY == nil && x == y
}

// keyText identifies a key by its text, whatever its type.
func keyText(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return "=" + n.Value
	}
	return canonical(n)
}

func (r unrenderer) comment(text string) string {
	if text == "" {
		return ""
	}
	return string(r.markers.mark(r.lines.unrender([]byte(text))))
}

func unrenderProperties(current []byte, of Original, values map[string]string, lines lineMap) []byte {
	c, made, template := readProperties(current), readProperties(of.Rendered), readProperties(of.Template)
	m := newMarkers(values, of.Template, current)
	out := &properties{at: map[string]int{}}
	templateOf := map[string]propertyLine{}
	for _, l := range template.lines {
		if l.pair {
			key, _ := Substitute(l.key, values)
			templateOf[key] = l
		}
	}
	for _, line := range c.lines {
		if !line.pair {
			line.raw = string(lines.unrender([]byte(line.raw)))
			out.lines = append(out.lines, line)
			continue
		}
		was, wasMade := made.line(line.key)
		from, brought := templateOf[line.key]
		switch {
		case !wasMade:
		case was.value == line.value && !brought: // a patch added it
			continue
		case was.value == line.value && (from.value != line.value || from.key != line.key):
			line.raw = from.raw
		case brought && was.value != line.value:
			if v := string(m.unmark([]byte(m.reinsert(line.value, string(m.mark([]byte(from.value))), values)))); v != line.value {
				line.raw = escapeProperty(from.key, true) + "=" + escapeProperty(v, false)
			}
		}
		out.lines = append(out.lines, line)
	}
	return out.bytes()
}

// lineMap maps generated lines to the template's lines, exactly and normalized.
type lineMap struct {
	exact, normalized map[string]string
}

// newLineMap maps the lines of the generated text to those of the template. It is empty if
// the numbers of lines differ, as with a value of several lines.
func newLineMap(of Original, values map[string]string) lineMap {
	m := lineMap{map[string]string{}, map[string]string{}}
	substituted, _ := Substitute(string(of.Template), values)
	to := bytes.SplitAfter(of.Template, []byte("\n"))
	for _, made := range [][]byte{of.Rendered, []byte(substituted)} {
		from := bytes.SplitAfter(made, []byte("\n"))
		if len(from) != len(to) {
			continue
		}
		for i, line := range from {
			was, is := lineText(line), lineText(to[i])
			if _, ok := m.exact[was]; !ok {
				m.exact[was] = is
			}
			if s := normalizeLine(was); was != is && s != "" {
				if _, ok := m.normalized[s]; !ok {
					m.normalized[s] = is
				}
			}
		}
	}
	return m
}

// unrender replaces generated lines by the template's lines. It ignores differences in blanks
// and quotes, and the position: many servers write their configuration in an order of their own.
func (m lineMap) unrender(content []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(content) {
		text := lineText(line)
		original, ok := m.exact[text]
		if !ok {
			original, ok = m.normalized[normalizeLine(text)]
		}
		if !ok {
			original = text
		}
		out.WriteString(original)
		out.Write(line[len(text):])
	}
	return out.Bytes()
}

// lineText returns a line without its line ending.
func lineText(line []byte) string { return strings.TrimRight(string(line), "\r\n") }

// normalizeLine removes blanks and quotes.
func normalizeLine(line string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\"'", r) {
			return -1
		}
		return r
	}, line)
}

// markers replace placeholders while a text is parsed, because most formats do not accept a
// placeholder as a value. They are integers that occur nowhere in the texts.
type markers struct {
	of, to map[string]string // placeholder to marker, and back
}

// markerPrefix starts each marker.
const markerPrefix = "731904265"

// newMarkers returns markers for the placeholders of a template that have a value.
func newMarkers(values map[string]string, template []byte, others ...[]byte) markers {
	m := markers{map[string]string{}, map[string]string{}}
	texts := append(others, template)
	next := int64(731_904_265_000_000_000)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		mark := ""
		for bytes.Contains(template, []byte("%"+name+"%")) && (mark == "" || slices.ContainsFunc(texts, func(t []byte) bool { return bytes.Contains(t, []byte(mark)) })) {
			next += 1_000_003
			mark = strconv.FormatInt(next, 10)
		}
		if mark != "" {
			m.of[name], m.to[mark] = mark, "%"+name+"%"
		}
	}
	return m
}

func (m markers) mark(text []byte) []byte {
	if len(m.of) == 0 {
		return text
	}
	out, _ := Substitute(string(text), m.of)
	return []byte(out)
}

func (m markers) unmark(text []byte) []byte {
	pairs := make([]string, 0, 2*len(m.to))
	for mark, placeholder := range m.to {
		pairs = append(pairs, mark, placeholder)
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(text)))
}

// damaged reports whether a marker was changed by parsing, because the placeholder was part of a
// number or of an escape sequence.
func (m markers) damaged(n *yaml.Node) bool {
	if n == nil {
		return false
	}
	without := func(text string) string {
		for mark := range m.to {
			text = strings.ReplaceAll(text, mark, "")
		}
		return text
	}
	digits := without(strings.ReplaceAll(n.Value, ".", ""))
	if n.Kind == yaml.ScalarNode && n.ShortTag() == tagFloat && strings.Contains(digits, markerPrefix[:6]) {
		return true
	}
	rest := without(n.Value) + " " + without(n.Tag)
	for mark := range m.to {
		if strings.Contains(rest, mark[4:]) {
			return true
		}
	}
	return slices.ContainsFunc(n.Content, m.damaged)
}

// reinsert replaces placeholder values in a string by the markers that the template has in the
// same value. It replaces whole words only.
func (m markers) reinsert(value, template string, values map[string]string) string {
	type known struct{ is, was string }
	var all []known
	for name, mark := range m.of {
		if v := values[name]; v != "" && strings.Contains(template, mark) {
			all = append(all, known{v, mark})
		}
	}
	slices.SortFunc(all, func(a, b known) int { // longest value first
		if n := len(b.is) - len(a.is); n != 0 {
			return n
		}
		return strings.Compare(a.was, b.was)
	})
	for _, k := range all {
		value = replaceWords(value, k.is, k.was)
	}
	return value
}

// replaceWords replaces a word where no letter or digit precedes or follows it.
func replaceWords(s, word, by string) string {
	var out strings.Builder
	for at := 0; ; {
		i := strings.Index(s[at:], word)
		if i < 0 {
			out.WriteString(s[at:])
			return out.String()
		}
		i += at
		end := i + len(word)
		out.WriteString(s[at:i])
		if i > 0 && joins(s[i-1], word[0]) || end < len(s) && joins(word[len(word)-1], s[end]) {
			out.WriteByte(s[i])
			at = i + 1
			continue
		}
		out.WriteString(by)
		at = end
	}
}

// joins reports whether two adjacent bytes belong to the same word.
func joins(a, b byte) bool { return wordByte(a) && wordByte(b) }

func wordByte(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
