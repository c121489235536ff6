package render

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Original is what a file of an instance was made of.
type Original struct {
	// SHA256 is the hash of what it holds as long as nobody changes it; empty for a file
	// that no template and no patch has made.
	SHA256 string
	// Template is its text before placeholders are replaced and patches applied, Made what
	// came of that. Both are nil for a file that was copied as it is, Template also for one
	// that patches alone have made.
	Template, Made []byte
}

// Restore is a file that an instance has changed as its template would have it: what the
// instance left as it was made says again what the template says, placeholders included,
// and what patches added goes, since they add it again. What the instance changed stays,
// but for values of placeholders where the template has these.
//
// Formats of a known structure are told apart by their keys, however the instance wrote
// them; all else by its lines, wherever they stand by now. Where the lines alone do it,
// the file's layout stays.
func Restore(name string, current []byte, of Original, values map[string]string) []byte {
	lines := originalLines(of, values)
	if FormatOf(name) == FormatProperties && allReadable(current, of.Template, of.Made) {
		return restoreProperties(current, of, values, lines)
	}
	byLines := lines.restore(current)
	if FormatOf(name) == FormatNone {
		return byLines
	}
	return restoreTree(FormatOf(name), current, byLines, of, values, lines)
}

func allReadable(all ...[]byte) bool {
	return !slices.ContainsFunc(all, func(b []byte) bool { return readable(b) != nil })
}

// restoreTree is the result by structure, byLines where it means the same or where
// nothing is known of the structure.
func restoreTree(f Format, current, byLines []byte, of Original, values map[string]string, lines original) []byte {
	m := newMarks(values, of.Template, current, of.Made)
	var trees [4]*yaml.Node
	for i, content := range [][]byte{current, of.Made, m.mark(of.Template), m.mark(byLines)} {
		tree, err := read(f, content)
		if err != nil && i < 3 {
			return byLines
		}
		trees[i] = tree
	}
	if trees[0] == nil || m.blurred(trees[2]) {
		return byLines
	}
	aligning := maxAlign
	r := restorer{values: values, marks: m, lines: lines, aligning: &aligning}
	want := r.node(trees[0], trees[1], trees[2])
	if want == nil {
		want = mapping()
	}
	if trees[3] != nil && means(trees[3], want) {
		return byLines
	}
	out, err := write(f, want)
	if err != nil {
		return byLines
	}
	return m.unmark(out)
}

// restorer lays a template under what an instance made of it.
type restorer struct {
	values map[string]string
	marks  marks
	lines  original
	// aligning is how much of sequences may still be compared.
	aligning *int
}

// node is the current value, or the template's where it is as it was made; nil where
// neither is to be kept.
func (r restorer) node(current, made, template *yaml.Node) *yaml.Node {
	switch {
	case current == nil || made == nil:
		return current
	case means(current, made) || readsLike(current, made):
		if template != nil && (means(made, template) || means(current, template)) {
			break // it says the same: how the instance writes it stays
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
		out.Value = r.marks.within(current.Value, template.Value, r.values)
	}
	return &out
}

func (r restorer) mapping(out, made, template *yaml.Node) {
	type pair struct{ key, value *yaml.Node }
	templates := map[string]pair{}
	for i := 0; i+1 < len(template.Content); i += 2 {
		key := *template.Content[i]
		key.Value, _ = Substitute(string(r.marks.unmark([]byte(key.Value))), r.values)
		if key.ShortTag() != tagString || key.Value != template.Content[i].Value {
			key.Tag = "" // what it reads like may have changed
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
		if value = r.node(value, mades[id], from.value); value == nil { // a patch made it
			continue
		}
		if from.key != nil && from.key.Kind == yaml.ScalarNode {
			key.Value, key.Tag, key.Style = from.key.Value, from.key.Tag, from.key.Style
		}
		key.HeadComment, key.LineComment, key.FootComment = r.comment(key.HeadComment), r.comment(key.LineComment), r.comment(key.FootComment)
		out.Content = append(out.Content, &key, value)
	}
}

// sequence keeps the elements of the instance, each against the one it was. What it added
// stays, and what it has removed is gone.
func (r restorer) sequence(out, made, template *yaml.Node) {
	ofMade := align(out.Content, made.Content, r.aligning)
	ofTemplate := align(made.Content, r.resolved(template).Content, r.aligning)
	paired := len(ofTemplate)
	for _, k := range ofTemplate {
		if k < 0 {
			paired--
		}
	}
	patched := paired == len(template.Content) // so what is not the template's, patches have added
	content := out.Content
	out.Content = make([]*yaml.Node, 0, len(content))
	for i, value := range content {
		j := ofMade[i]
		switch {
		case j < 0:
		case ofTemplate[j] >= 0:
			value = r.node(value, made.Content[j], template.Content[ofTemplate[j]])
		case patched && same(value, made.Content[j]): // it is added again
			continue
		}
		out.Content = append(out.Content, value)
	}
}

// resolved is a template's node with its placeholders replaced.
func (r restorer) resolved(n *yaml.Node) *yaml.Node {
	out := *n
	if n.Kind == yaml.ScalarNode {
		out.Value, _ = Substitute(string(r.marks.unmark([]byte(n.Value))), r.values)
	}
	out.Content = make([]*yaml.Node, 0, len(n.Content))
	for _, c := range n.Content {
		out.Content = append(out.Content, r.resolved(c))
	}
	return &out
}

// readsLike reports whether two values are written alike, though one may be a word and
// the other a number, or are numbers of the same size.
func readsLike(a, b *yaml.Node) bool {
	if a.Kind != yaml.ScalarNode || b.Kind != yaml.ScalarNode || a.ShortTag() == tagNull || b.ShortTag() == tagNull {
		return false
	}
	x, errX := strconv.ParseFloat(a.Value, 64)
	y, errY := strconv.ParseFloat(b.Value, 64)
	return a.Value == b.Value || errX == nil && errY == nil && x == y
}

// keyText tells keys apart by what they say, whatever it reads like.
func keyText(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return "=" + n.Value
	}
	return identity(n)
}

func (r restorer) comment(text string) string {
	if text == "" {
		return ""
	}
	return string(r.marks.mark(r.lines.restore([]byte(text))))
}

func restoreProperties(current []byte, of Original, values map[string]string, lines original) []byte {
	c, made, template := readProperties(current), readProperties(of.Made), readProperties(of.Template)
	m := newMarks(values, of.Template, current)
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
			line.raw = string(lines.restore([]byte(line.raw)))
			out.lines = append(out.lines, line)
			continue
		}
		was, wasMade := made.line(line.key)
		from, brought := templateOf[line.key]
		switch {
		case !wasMade:
		case was.value == line.value && !brought: // a patch made it
			continue
		case was.value == line.value && (from.value != line.value || from.key != line.key):
			line.raw = from.raw
		case brought && was.value != line.value:
			if v := string(m.unmark([]byte(m.within(line.value, string(m.mark([]byte(from.value))), values)))); v != line.value {
				line.raw = escapeProperty(from.key, true) + "=" + escapeProperty(v, false)
			}
		}
		out.lines = append(out.lines, line)
	}
	return out.bytes()
}

// original are a template's lines by what they became.
type original struct {
	exact, squeezed map[string]string
}

// originalLines are the lines of a template by what was made of them; none where a value
// has lines of its own, for then it is not known which line is whose.
func originalLines(of Original, values map[string]string) original {
	o := original{map[string]string{}, map[string]string{}}
	substituted, _ := Substitute(string(of.Template), values)
	to := bytes.SplitAfter(of.Template, []byte("\n"))
	for _, made := range [][]byte{of.Made, []byte(substituted)} {
		from := bytes.SplitAfter(made, []byte("\n"))
		if len(from) != len(to) {
			continue
		}
		for i, line := range from {
			was, is := lineText(line), lineText(to[i])
			if _, ok := o.exact[was]; !ok {
				o.exact[was] = is
			}
			if s := squeeze(was); was != is && s != "" {
				if _, ok := o.squeezed[s]; !ok {
					o.squeezed[s] = is
				}
			}
		}
	}
	return o
}

// restore puts the template's line back wherever a line is still as it was made of it, or
// so but for blanks and quotes. Lines are told by what they say, not by where they stand:
// servers write their configuration anew in an order of their own.
func (o original) restore(content []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(content) {
		text := lineText(line)
		original, ok := o.exact[text]
		if !ok {
			original, ok = o.squeezed[squeeze(text)]
		}
		if !ok {
			original = text
		}
		out.WriteString(original)
		out.Write(line[len(text):])
	}
	return out.Bytes()
}

// lineText is a line without its end.
func lineText(line []byte) string { return strings.TrimRight(string(line), "\r\n") }

// squeeze is a line without blanks and quotes.
func squeeze(line string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\"'", r) {
			return -1
		}
		return r
	}, line)
}

// marks stand for placeholders while a text is taken apart: a placeholder itself would
// be no value in most formats. They are whole numbers that occur nowhere else.
type marks struct {
	of, to map[string]string // placeholder to mark, and back
}

// firstMark is what marks begin with.
const firstMark = "731904265"

// newMarks gives every placeholder of a template that has a value its mark.
func newMarks(values map[string]string, template []byte, others ...[]byte) marks {
	m := marks{map[string]string{}, map[string]string{}}
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

func (m marks) mark(text []byte) []byte {
	if len(m.of) == 0 {
		return text
	}
	out, _ := Substitute(string(text), m.of)
	return []byte(out)
}

func (m marks) unmark(text []byte) []byte {
	pairs := make([]string, 0, 2*len(m.to))
	for mark, placeholder := range m.to {
		pairs = append(pairs, mark, placeholder)
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(text)))
}

// blurred reports whether a mark did not survive that a text was taken apart, as where a
// placeholder was part of a number or of an escape, which takes digits after it.
func (m marks) blurred(n *yaml.Node) bool {
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
	if n.Kind == yaml.ScalarNode && n.ShortTag() == tagFloat && strings.Contains(digits, firstMark[:6]) {
		return true
	}
	rest := without(n.Value) + " " + without(n.Tag)
	for mark := range m.to {
		if strings.Contains(rest, mark[4:]) {
			return true
		}
	}
	return slices.ContainsFunc(n.Content, m.blurred)
}

// within puts the marks that a template's value has in place of what they stand for in
// another, where that is a word of its own.
func (m marks) within(value, template string, values map[string]string) string {
	type known struct{ is, was string }
	var all []known
	for name, mark := range m.of {
		if v := values[name]; v != "" && strings.Contains(template, mark) {
			all = append(all, known{v, mark})
		}
	}
	slices.SortFunc(all, func(a, b known) int { // longest first
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

// replaceWords replaces a text where no letter or digit goes on with it.
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

// joins reports whether two neighbours are of one word.
func joins(a, b byte) bool { return wordByte(a) && wordByte(b) }

func wordByte(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
