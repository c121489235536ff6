package main

import (
	"path"
	"slices"
	"strings"
)

// home says where certain imports may stand. Everything is a prefix at a path boundary.
type home struct {
	// imports are the import paths that are confined.
	imports []string
	// dirs may import them anywhere.
	dirs []string
	// tests may import them in _test.go files.
	tests []string
}

// confined finds the confined imports outside their home.
func confined(h home) func(*pkg, func(*file, int, string)) {
	return func(p *pkg, found func(*file, int, string)) {
		if within(p.dir, h.dirs...) {
			return
		}
		for _, f := range p.files {
			if f.test && within(p.dir, h.tests...) {
				continue
			}
			for _, i := range f.imports {
				if within(i.path, h.imports...) {
					found(f, i.line, "imports "+i.path)
				}
			}
		}
	}
}

// importsOnly finds imports of the packages in dirs that are neither standard nor
// one of ours in allowed. Tests may import what they like.
func importsOnly(dirs []string, allowed ...string) func(*pkg, func(*file, int, string)) {
	return func(p *pkg, found func(*file, int, string)) {
		if !within(p.dir, dirs...) {
			return
		}
		eachImport(p, func(f *file, i imported) {
			dir, ours := own(i.path)
			if standard(i.path) || ours && within(dir, allowed...) {
				return
			}
			found(f, i.line, "imports "+i.path)
		})
	}
}

// eachImport visits the imports of the files that are not tests.
func eachImport(p *pkg, visit func(f *file, i imported)) {
	for _, f := range p.files {
		if f.test {
			continue
		}
		for _, i := range f.imports {
			visit(f, i)
		}
	}
}

// moduleImports finds imports of the module, also in its tests, that are ours but not of an allowed
// module.
func moduleImports(module string, allowed ...string) func(*pkg, func(*file, int, string)) {
	return func(p *pkg, found func(*file, int, string)) {
		if p.module != module {
			return
		}
		for _, f := range p.files {
			for _, i := range f.imports {
				if dir, ours := own(i.path); ours && !within(dir, allowed...) {
					found(f, i.line, "imports "+i.path)
				}
			}
		}
	}
}

// servicesApart finds imports of a service from outside it that do not go
// through one of its doors.
func servicesApart(p *pkg, found func(*file, int, string)) {
	composes := p.module == "standalone" || within(p.module, "e2e")
	for _, f := range p.files {
		for _, i := range f.imports {
			dir, ours := own(i.path)
			service, door, _ := strings.Cut(dir, "/")
			if !ours || service == p.module || !slices.Contains(services, service) {
				continue
			}
			if door == "client" || door == "" && (composes || f.test) {
				continue
			}
			found(f, i.line, "imports "+i.path)
		}
	}
}

// impure are the standard packages that do I/O, hold a deadline, log or draw
// random numbers of their own.
var impure = []string{
	"context", "crypto/rand", "database/sql", "io/fs", "io/ioutil", "log", "net", "os", "path/filepath",
	"plugin", "runtime", "syscall", "testing",
}

// pureValues are packages below an impure one that only compute.
var pureValues = []string{"net/netip", "net/url"}

func pureImports(p *pkg, found func(*file, int, string)) {
	if !within(p.dir, purePackages...) {
		return
	}
	eachImport(p, func(f *file, i imported) {
		dir, ours := own(i.path)
		switch {
		case ours && within(dir, append([]string{"libs/errs"}, purePackages...)...):
		case ours, !standard(i.path):
			found(f, i.line, "imports "+i.path)
		case within(i.path, impure...) && !slices.Contains(pureValues, i.path):
			found(f, i.line, "imports "+i.path)
		}
	})
}

// vague are package names that say nothing about what the package gives.
var vague = []string{
	"base", "common", "helper", "helpers", "misc", "models", "shared", "types", "util", "utils",
}

func packageNames(p *pkg, found func(*file, int, string)) {
	for _, f := range p.files {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if slices.Contains(vague, name) || slices.Contains(vague, path.Base(p.dir)) {
			found(f, f.line(f.syntax.Name.Pos()), "package "+name)
			return
		}
	}
}

func exportedPackages(p *pkg, found func(*file, int, string)) {
	if !slices.Contains(services, p.module) {
		return
	}
	inner := p.inner()
	if inner == "" || within(inner, "client", "cmd") || slices.Contains(strings.Split(inner, "/"), "internal") {
		return
	}
	found(p.files[0], 1, "package "+p.dir+" is visible from outside")
}
