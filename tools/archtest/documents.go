package main

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// testName matches what Go's tools take for the name of a test, a fuzz test or a benchmark,
// with the package before it if there is one, as in: `libs/store` TestName.
var testName = regexp.MustCompile("(?:`([a-z0-9/_-]+)` )?" + `\b((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*)`)

// namesTests finds the names of tests that the named package does not have, or no package.
func namesTests(t *tree, d document, found func(int, string)) {
	for n, line := range strings.Split(d.text, "\n") {
		for _, m := range testName.FindAllStringSubmatch(line, -1) {
			switch where, name := m[1], m[2]; {
			case len(t.tests[name]) == 0:
				found(n+1, "names "+name+", which no package has")
			case where != "" && !slices.ContainsFunc(t.tests[name], func(dir string) bool { return isMeant(where, dir) }):
				found(n+1, "names "+name+" of "+where+", which "+strings.Join(t.tests[name], " and ")+" has")
			}
		}
	}
}

// isMeant reports whether a document's name of a package may mean the one in dir: by its
// folder, the end of that, or a folder above.
func isMeant(name, dir string) bool {
	return strings.HasSuffix("/"+dir, "/"+name) || strings.HasPrefix(dir, name+"/")
}

// testsOf are the folders of the packages that have a test, by its name.
func testsOf(packages []*pkg) map[string][]string {
	dirs := map[string][]string{}
	for _, p := range packages {
		for _, f := range p.files {
			if !f.test {
				continue
			}
			for _, d := range f.syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					dirs[fn.Name.Name] = append(dirs[fn.Name.Name], p.dir)
				}
			}
		}
	}
	return dirs
}
