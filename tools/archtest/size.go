package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// maxLines is how many lines a package may have without its tests and generated files.
const maxLines = 3000

// maxEntries is how many folders and files an internal folder may have.
const maxEntries = 14

// packageSize finds packages that are too large to read. Scenarios and benchmarks of e2e may be longer.
func packageSize(p *pkg, found func(*file, int, string)) {
	if within(p.dir, "e2e") {
		return
	}
	lines := 0
	var first *file
	for _, f := range p.files {
		if f.test || ast.IsGenerated(f.syntax) {
			continue
		}
		if first == nil {
			first = f
		}
		lines += f.fset.File(f.syntax.FileStart).LineCount()
	}
	if lines > maxLines {
		found(first, 1, fmt.Sprintf("package %s has %d lines, at most %d are allowed", p.dir, lines, maxLines))
	}
}

// internalEntries finds folders named internal that list too much.
func internalEntries(t *tree, found func(path string, line int, what string)) {
	entries := map[string][]string{}
	for _, p := range t.packages {
		before, after, ok := strings.Cut(p.dir, "/internal/")
		if !ok {
			continue
		}
		dir := before + "/internal"
		entry, _, _ := strings.Cut(after, "/")
		if !slices.Contains(entries[dir], entry) {
			entries[dir] = append(entries[dir], entry)
		}
	}
	for dir, list := range entries {
		if len(list) > maxEntries {
			found(dir, 1, fmt.Sprintf("has %d entries, at most %d are allowed", len(list), maxEntries))
		}
	}
}
