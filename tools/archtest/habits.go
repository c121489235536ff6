package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// clockReads are the functions of package time that read the clock or wait.
var clockReads = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

func pureTime(p *pkg, found func(*file, int, string)) {
	if !within(p.dir, purePackages...) {
		return
	}
	for _, f := range p.files {
		if !f.test {
			eachUse(f, "time", clockReads, found)
		}
	}
}

func noSleepInTests(p *pkg, found func(*file, int, string)) {
	for _, f := range p.files {
		if f.test {
			eachUse(f, "time", []string{"Sleep"}, found)
		}
	}
}

// globalServices are the process-wide instances a package could reach for.
var globalServices = map[string][]string{
	"log":      {"Default", "Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Print", "Printf", "Println", "SetOutput"},
	"log/slog": {"Debug", "DebugContext", "Default", "Error", "ErrorContext", "Info", "InfoContext", "Log", "SetDefault", "Warn", "WarnContext", "With"},
	"net/http": {"DefaultClient", "DefaultServeMux", "Get", "Handle", "HandleFunc", "Head", "ListenAndServe", "Post", "PostForm"},
	"github.com/prometheus/client_golang/prometheus":          {"DefaultGatherer", "DefaultRegisterer", "MustRegister", "Register"},
	"github.com/prometheus/client_golang/prometheus/promauto": {"NewCounter", "NewCounterVec", "NewGauge", "NewGaugeVec", "NewHistogram", "NewHistogramVec"},
}

func noGlobalServices(p *pkg, found func(*file, int, string)) {
	for _, f := range p.files {
		if f.test {
			continue
		}
		for importPath, names := range globalServices {
			eachUse(f, importPath, names, found)
		}
	}
}

// eachUse finds the selectors name.X of an imported package with X in names.
func eachUse(f *file, importPath string, names []string, found func(*file, int, string)) {
	local, ok := f.localName(importPath)
	if !ok {
		return
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && id.Name == local && slices.Contains(names, sel.Sel.Name) {
			found(f, f.line(sel.Pos()), "uses "+importPath+"."+sel.Sel.Name)
		}
		return true
	})
}

func packageComment(p *pkg, found func(*file, int, string)) {
	if !p.hasCode() {
		return
	}
	for _, f := range p.files {
		if !f.test && f.syntax.Doc != nil && strings.TrimSpace(f.syntax.Doc.Text()) != "" {
			return
		}
	}
	f := p.files[slices.IndexFunc(p.files, func(f *file) bool { return !f.test })]
	found(f, f.line(f.syntax.Package), "package "+f.syntax.Name.Name+" has no comment")
}

func noInit(p *pkg, found func(*file, int, string)) {
	for _, f := range p.files {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				found(f, f.line(fn.Pos()), "declares init")
			}
		}
	}
}

// noGlobals finds package-level variables that hold state. Tests may have them:
// the flags of golden files are the usual case.
func noGlobals(p *pkg, found func(*file, int, string)) {
	for _, f := range p.files {
		if f.test {
			continue
		}
		for _, decl := range f.syntax.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				globalsOf(f, gen, spec.(*ast.ValueSpec), found)
			}
		}
	}
}

func globalsOf(f *file, gen *ast.GenDecl, spec *ast.ValueSpec, found func(*file, int, string)) {
	if embedded(gen.Doc) || embedded(spec.Doc) {
		return
	}
	for i, name := range spec.Names {
		if name.Name == "_" || stamped(f, name.Name) {
			continue
		}
		// One call may fill several names: var a, b = f().
		if len(spec.Values) == len(spec.Names) && constant(spec.Values[i]) {
			continue
		}
		found(f, f.line(name.Pos()), "var "+name.Name)
	}
}

// stamped reports whether the variable is the version that the linker sets.
func stamped(f *file, name string) bool {
	in := f.syntax.Name.Name
	return (in == "telemetry" || in == "app") && name == "version"
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// constantMakers are packages whose functions, called once at start, return values
// that no code changes afterwards.
var constantMakers = map[string]bool{
	"base32": true, "base64": true, "big": true, "crc32": true, "errors": true, "errs": true, "hex": true,
	"lazyregexp": true, "netip": true, "reflect": true, "regexp": true, "strings": true, "template": true,
}

// stateful are endings of a type's name that make a composite literal state, not a table.
var stateful = []string{"Client", "Logger", "Mutex", "Registry", "Transport"}

// constant reports whether a package-level variable with this value is a constant
// in all but name: a table, an error, a compiled pattern.
func constant(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.CompositeLit:
		return !holdsState(v.Type)
	case *ast.UnaryExpr:
		lit, ok := v.X.(*ast.CompositeLit)
		return ok && v.Op == token.AND && constant(lit)
	case *ast.CallExpr:
		return constantCall(v)
	}
	return false
}

func constantCall(call *ast.CallExpr) bool {
	switch fn := call.Fun.(type) {
	case *ast.ArrayType: // a conversion such as []byte("…")
		return true
	case *ast.SelectorExpr:
		return constantMakers[rootName(fn)]
	case *ast.IndexExpr: // reflect.TypeFor[T]()
		sel, ok := fn.X.(*ast.SelectorExpr)
		return ok && constantMakers[rootName(sel)]
	}
	return false
}

// rootName is the leftmost name of a chain such as base32.StdEncoding.WithPadding.
func rootName(e ast.Expr) string {
	switch v := e.(type) {
	case *ast.Ident:
		return v.Name
	case *ast.SelectorExpr:
		return rootName(v.X)
	case *ast.CallExpr:
		return rootName(v.Fun)
	}
	return ""
}

func holdsState(typ ast.Expr) bool {
	name := ""
	switch t := typ.(type) {
	case *ast.Ident:
		name = t.Name
	case *ast.SelectorExpr:
		if pkg := rootName(t); pkg == "sync" || pkg == "atomic" {
			return true
		}
		name = t.Sel.Name
	}
	return slices.ContainsFunc(stateful, func(word string) bool { return strings.HasSuffix(name, word) })
}
