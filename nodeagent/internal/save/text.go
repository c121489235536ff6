package save

import (
	"bytes"
	"strings"
)

// leastSecret is how long a secret must be to be looked for, in bytes: a shorter one is
// in every text.
const leastSecret = 4

// Secret is a text that must not leave the node.
type Secret struct {
	Value string
	// Placeholder is what is written in its place; empty: a file that holds it is left out.
	Placeholder string
}

// restore puts back the template's line wherever a line is still as it was made of it
// here. Lines are told by what they say, not by where they stand: servers write their
// configuration anew in an order of their own.
func restore(content, template, made []byte) []byte {
	from, to := bytes.SplitAfter(made, []byte("\n")), bytes.SplitAfter(template, []byte("\n"))
	if len(from) != len(to) { // a value has lines of its own: which line is whose is not known
		return content
	}
	originals := map[string]string{}
	for i, line := range from {
		if _, ok := originals[text(line)]; !ok {
			originals[text(line)] = text(to[i])
		}
	}
	var out bytes.Buffer
	for line := range bytes.Lines(content) {
		original, ok := originals[text(line)]
		if !ok {
			out.Write(line)
			continue
		}
		out.WriteString(original)
		out.Write(line[len(text(line)):])
	}
	return out.Bytes()
}

// text is a line without its end.
func text(line []byte) string { return strings.TrimRight(string(line), "\r\n") }

// mask replaces secrets, and is false where one cannot be replaced. What the template
// says itself is no secret of the instance.
func mask(content, template []byte, secrets []Secret) (masked []byte, ok bool) {
	for _, s := range secrets {
		value := []byte(s.Value)
		if len(value) < leastSecret || !bytes.Contains(content, value) || bytes.Contains(template, value) {
			continue
		}
		if s.Placeholder == "" {
			return nil, false
		}
		content = bytes.ReplaceAll(content, value, []byte(s.Placeholder))
	}
	return content, true
}
