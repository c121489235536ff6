package output

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/theory/jsonpath"
)

// part is a part of a template of -o jsonpath: text, a path, or a range with the parts that it repeats.
type part struct {
	text string
	// path is nil for text. It begins at the element of the range around it, or at the whole answer if absolute is true.
	path     *jsonpath.Path
	absolute bool
	// repeat are the parts for each value of path, and isRange tells a range without parts from a path.
	repeat  []part
	isRange bool
}

// parseTemplate parses expressions in braces with text between them, or one expression without braces.
func parseTemplate(text string) ([]part, error) {
	p := templateParser{text: text}
	if !strings.ContainsAny(text, "{}") {
		only, err := p.path(0, text)
		return []part{only}, err
	}
	return p.parts(-1)
}

type templateParser struct {
	text string
	at   int
}

// parts parses up to the end of the text, or up to the {end} of the range that began at open; -1 is no range.
func (p *templateParser) parts(open int) ([]part, error) {
	var out []part
	for p.at < len(p.text) {
		start := p.at
		inner, err := p.next()
		switch {
		case err != nil:
			return nil, err
		case p.text[start] != '{':
			out = append(out, part{text: unescape.Replace(inner)})
			continue
		}
		word, rest, _ := strings.Cut(inner, " ")
		var next part
		switch {
		case inner == "end" && open >= 0:
			return out, nil
		case inner == "end":
			return nil, p.errorf(start, "{end} has no {range}")
		case word == "range":
			if next, err = p.path(start, strings.TrimSpace(rest)); err == nil {
				next.isRange = true
				next.repeat, err = p.parts(start)
			}
		case inner != "" && strings.ContainsRune(`"'`, rune(inner[0])):
			next.text, err = p.quoted(start, inner)
		default:
			next, err = p.path(start, inner)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, next)
	}
	if open >= 0 {
		return nil, p.errorf(open, "{range} has no {end}")
	}
	return out, nil
}

// unescape replaces what stands for other characters in text outside of braces.
var unescape = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`)

// next returns the text up to the next brace, or what is between the braces that begin here.
func (p *templateParser) next() (string, error) {
	start := p.at
	if p.text[start] != '{' {
		if p.at += strings.IndexAny(p.text[start:]+"{", "{}"); p.at < len(p.text) && p.text[p.at] == '}' {
			return "", p.errorf(p.at, `} has no {; a brace as text is {"}"}`)
		}
		return p.text[start:p.at], nil
	}
	quote := byte(0)
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case quote != 0 && c == '\\':
			p.at++
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '}':
			p.at++
			return strings.TrimSpace(p.text[start+1 : p.at-1]), nil
		}
	}
	return "", p.errorf(start, "{ has no }")
}

// quoted returns the text between quotes, with the escapes of Go.
func (p *templateParser) quoted(at int, text string) (string, error) {
	quote, rest, out := text[0], text[1:], ""
	for rest != "" && rest[0] != quote {
		c, _, tail, err := strconv.UnquoteChar(rest, quote)
		if err != nil {
			break
		}
		out, rest = out+string(c), tail
	}
	if rest != text[:1] {
		return "", p.errorf(at, "{%s} is not a text in quotes", text)
	}
	return out, nil
}

// path parses an expression: .a.b, a.b and @.a.b begin at the element of the range, $.a.b at the answer.
func (p *templateParser) path(at int, expression string) (part, error) {
	rooted := "$." + expression
	switch {
	case expression == "":
		return part{}, p.errorf(at, "the expression is missing")
	case expression == ".", expression == "@":
		rooted = "$"
	case strings.HasPrefix(expression, "$"):
		rooted = expression
	case strings.HasPrefix(expression, "@"):
		rooted = "$" + expression[1:]
	case strings.HasPrefix(expression, "."), strings.HasPrefix(expression, "["):
		rooted = "$" + expression
	case strings.Contains(expression, " "): // the library would leave the space out
		return part{}, p.errorf(at, "{%s} is not known: an expression begins with a dot, and the only words are range and end", expression)
	}
	path, err := jsonpath.Parse(rooted)
	if err != nil {
		return part{}, p.errorf(at, "%q: %w", expression, err)
	}
	return part{path: path, absolute: strings.HasPrefix(expression, "$")}, nil
}

func (p *templateParser) errorf(at int, format string, args ...any) error {
	return fmt.Errorf("at character %d: %w", len([]rune(p.text[:at]))+1, fmt.Errorf(format, args...))
}

// values returns the values at the path of a part as text: strings as they are, others as JSON.
func (t part) values(root, current any) ([]any, []string, error) {
	if t.absolute {
		current = root
	}
	found := t.path.Select(current)
	texts := make([]string, len(found))
	for i, value := range found {
		text, ok := value.(string)
		if !ok {
			encoded, err := json.Marshal(value)
			if err != nil {
				return nil, nil, err
			}
			text = string(encoded)
		}
		texts[i] = text
	}
	return found, texts, nil
}

// write writes parts. Several values of a path have spaces between them.
func write(b *strings.Builder, parts []part, root, current any) error {
	for _, t := range parts {
		if t.path == nil {
			b.WriteString(t.text)
			continue
		}
		found, texts, err := t.values(root, current)
		if err != nil {
			return err
		}
		if !t.isRange {
			b.WriteString(strings.Join(texts, " "))
			continue
		}
		for _, element := range found {
			if err := write(b, t.repeat, root, element); err != nil {
				return err
			}
		}
	}
	return nil
}

// jsonpath prints the values of a single path one a line, and otherwise the template, with a line break at its end.
func (p Printer) jsonpath(value []byte) error {
	var root any
	if err := json.Unmarshal(value, &root); err != nil {
		return err
	}
	var b strings.Builder
	if parts := p.Format.template; len(parts) == 1 && parts[0].path != nil && !parts[0].isRange {
		_, texts, err := parts[0].values(root, root)
		if err != nil {
			return err
		}
		for _, text := range texts {
			b.WriteString(text + "\n")
		}
	} else if err := write(&b, parts, root, root); err != nil {
		return err
	} else if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	_, err := p.Out.Write([]byte(b.String()))
	return err
}
