package main

import (
	"go/ast"
	"regexp"
	"strings"
)

// testName matches what Go's tools take for the name of a test, a fuzz test or a benchmark.
var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*`)

// namesTests finds the names of tests that no package has.
func namesTests(t *tree, d document, found func(int, string)) {
	for n, line := range strings.Split(d.text, "\n") {
		for _, name := range testName.FindAllString(line, -1) {
			if !t.hasTest(name) {
				found(n+1, "names "+name+", which no package has")
			}
		}
	}
}

// hasTest reports whether a package has a test of that name.
func (t *tree) hasTest(name string) bool {
	for _, p := range t.packages {
		for _, f := range p.files {
			if !f.test {
				continue
			}
			for _, d := range f.syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == name {
					return true
				}
			}
		}
	}
	return false
}
