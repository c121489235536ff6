package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sentence is one sentence and the line where its text begins.
type sentence struct {
	line int
	text string
}

// minWords is how many words a string literal has at least to count as prose.
const minWords = 5

// sentencesOf returns the sentences of a file: comments and messages of Go,
// paragraphs, list items and table cells of Markdown, and the summaries and
// descriptions of JSON. It returns nil for other files.
func sentencesOf(path string, text []byte) []sentence {
	switch {
	case strings.HasSuffix(path, ".go"):
		return goSentences(path, text)
	case strings.HasSuffix(path, ".md"):
		return markdownSentences(string(text))
	case strings.HasSuffix(path, ".json"):
		return jsonSentences(text)
	}
	return nil
}

// goSentences reads the comments, and the string literals outside tests that have at least minWords words.
// It returns nil for a file that does not parse: the compiler reports that.
func goSentences(path string, text []byte) []sentence {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	var out []sentence
	for _, group := range file.Comments {
		out = append(out, split(fset.Position(group.Pos()).Line, withoutExamples(group.Text()))...)
	}
	if strings.HasSuffix(path, "_test.go") {
		return out
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if s, err := strconv.Unquote(literal.Value); err == nil && len(strings.Fields(s)) >= minWords {
			out = append(out, split(fset.Position(literal.Pos()).Line, s)...)
		}
		return true
	})
	return out
}

// withoutExamples removes the indented lines of a comment: they are code.
func withoutExamples(comment string) string {
	lines := strings.Split(comment, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "\t") || strings.HasPrefix(l, "    ") {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

var listItem = regexp.MustCompile(`^\s*(?:[-*+]|\d+\.)\s+`)

// markdownSentences leaves out code blocks and headings' marks.
func markdownSentences(text string) []sentence {
	var out []sentence
	var paragraph []string
	start, fenced := 0, false
	end := func() {
		out = append(out, split(start, strings.Join(paragraph, "\n"))...)
		paragraph = nil
	}
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		fence := strings.HasPrefix(trimmed, "```")
		if fence {
			fenced = !fenced
		}
		switch {
		case fence || fenced || trimmed == "":
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for _, cell := range strings.Split(trimmed, "|") {
				out = append(out, split(i+1, cell)...)
			}
		default:
			if listItem.MatchString(line) || strings.HasPrefix(trimmed, "#") {
				end()
				trimmed = strings.TrimLeft(listItem.ReplaceAllString(line, ""), "# ")
			}
			if len(paragraph) == 0 {
				start = i + 1
			}
			paragraph = append(paragraph, trimmed)
		}
	}
	end()
	return out
}

// jsonSentences reads the values of the keys "summary" and "description" at any depth.
func jsonSentences(text []byte) []sentence {
	var out []sentence
	decoder := json.NewDecoder(bytes.NewReader(text))
	isText := false
	for {
		t, err := decoder.Token()
		if err == io.EOF || err != nil {
			return out
		}
		s, ok := t.(string)
		if isText && ok {
			line := 1 + bytes.Count(text[:decoder.InputOffset()], []byte("\n"))
			out = append(out, split(line, s)...)
		}
		// A value that happens to be one of these words is followed by a key or a
		// bracket, so the next string is read as a text at worst.
		isText = ok && !isText && slices.Contains([]string{"summary", "description"}, s)
	}
}

// shortest is the number of bytes under which a text is a name, not a sentence.
const shortest = 12

// split cuts a text at the ends of its sentences and paragraphs.
func split(line int, text string) []sentence {
	var out []sentence
	for _, s := range boundary.Split(breaks.ReplaceAllString(text, "$1\x00$2"), -1) {
		s = strings.Join(strings.Fields(s), " ")
		if len(s) > shortest && strings.Contains(s, " ") {
			out = append(out, sentence{line: line, text: s})
		}
	}
	return out
}

var (
	breaks   = regexp.MustCompile("([.!?:;])\\s+([A-Z`\"'(])")
	boundary = regexp.MustCompile(`\x00|\n\s*\n`)
)
