package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// modulePrefix is the common prefix of all package paths of the repository. The folder of the
// package follows it.
const modulePrefix = "github.com/orreryhq/orrery/"

// tree is the repository as the rules see it.
type tree struct {
	// modules are the folders that hold a go.mod, sorted.
	modules []string
	// packages are sorted by folder.
	packages []*pkg
	// tests are the folders of the packages that have a test, by its name.
	tests map[string][]string
	// documents are the Markdown files but changelog.
	documents []document
}

// changelog describes the past, so it may name tests that no longer exist.
const changelog = "CHANGELOG.md"

// document is one Markdown file.
type document struct {
	// path is relative to the repository's root.
	path, text string
}

// pkg is one folder of Go files.
type pkg struct {
	// dir is the folder below the repository's root, e.g. "libs/store/view". It is the package's identity.
	dir string
	// module is the folder of the module the package belongs to.
	module string
	files  []*file
}

// file is one parsed Go file.
type file struct {
	// path is relative to the repository's root.
	path    string
	test    bool
	syntax  *ast.File
	fset    *token.FileSet
	imports []imported
}

// imported is one import declaration.
type imported struct {
	path string
	line int
}

// inner is the folder of the package inside its module, "" for the module's root.
func (p *pkg) inner() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.dir, p.module), "/")
}

// hasCode reports whether the package holds more than tests.
func (p *pkg) hasCode() bool {
	return slices.ContainsFunc(p.files, func(f *file) bool { return !f.test })
}

func (f *file) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// localName is the name under which f refers to the package with that import
// path; ok is false when f does not import it.
func (f *file) localName(importPath string) (name string, ok bool) {
	for _, spec := range f.syntax.Imports {
		if unquote(spec.Path.Value) != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name, true
		}
		return path.Base(importPath), true
	}
	return "", false
}

// load parses every Go file below a go.mod, and reads every document. Hidden folders, testdata and the
// output folders are passed over.
func load(fsys fs.FS) (*tree, error) {
	fset := token.NewFileSet()
	byDir := map[string]*pkg{}
	t := &tree{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && ignored(name) {
				return fs.SkipDir
			}
		case path.Base(name) == "go.mod":
			t.modules = append(t.modules, path.Dir(name))
		case strings.HasSuffix(name, ".go"):
			return parseInto(byDir, fset, fsys, name)
		case strings.HasSuffix(name, ".md") && name != changelog:
			text, err := fs.ReadFile(fsys, name)
			t.documents = append(t.documents, document{name, string(text)})
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(t.modules)
	for _, p := range byDir {
		if p.module = moduleOf(t.modules, p.dir); p.module != "" {
			t.packages = append(t.packages, p)
		}
	}
	slices.SortFunc(t.packages, func(a, b *pkg) int { return cmp.Compare(a.dir, b.dir) })
	t.tests = testsOf(t.packages)
	return t, nil
}

func ignored(dir string) bool {
	base := path.Base(dir)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" {
		return true
	}
	return slices.Contains([]string{"bin", "data", "dist"}, dir)
}

func parseInto(byDir map[string]*pkg, fset *token.FileSet, fsys fs.FS, name string) error {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	dir := path.Dir(name)
	p, ok := byDir[dir]
	if !ok {
		p = &pkg{dir: dir}
		byDir[dir] = p
	}
	f := &file{path: name, test: strings.HasSuffix(name, "_test.go"), syntax: syntax, fset: fset}
	for _, spec := range syntax.Imports {
		f.imports = append(f.imports, imported{path: unquote(spec.Path.Value), line: f.line(spec.Pos())})
	}
	p.files = append(p.files, f)
	return nil
}

// moduleOf is the innermost module that holds dir, "" when none does.
func moduleOf(modules []string, dir string) string {
	best := ""
	for _, m := range modules {
		if within(dir, m) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// within reports whether dir is one of the roots or lies below one.
func within(dir string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}

// own turns an import path of this repository into a folder; ok is false for foreign ones.
func own(importPath string) (dir string, ok bool) {
	return strings.CutPrefix(importPath, modulePrefix)
}

// standard reports whether the import path belongs to Go's standard library.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func unquote(literal string) string {
	s, err := strconv.Unquote(literal)
	if err != nil {
		return literal
	}
	return s
}
