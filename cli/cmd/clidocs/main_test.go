package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cli")
	var out strings.Builder
	if code := run([]string{"-pages", dir}, &out, &out); code != 0 {
		t.Fatalf("%d: %s", code, out.String())
	}
	page, err := os.ReadFile(filepath.Join(dir, "apply.md"))
	if err != nil || !strings.Contains(string(page), "# orrery apply") || !strings.Contains(string(page), "--prune") {
		t.Fatalf("%s, %v", page, err)
	}
	if code := run([]string{"-pages", dir, "-check"}, &out, &out); code != 0 {
		t.Errorf("fresh pages are out of date: %s", out.String())
	}
	extra := filepath.Join(dir, "gone.md")
	if err := os.WriteFile(extra, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"-pages", dir, "-check"}, &out, &out); code != 1 || !strings.Contains(out.String(), "gone.md is of no command") {
		t.Errorf("%d: %s", code, out.String())
	}
	if code := run([]string{"-pages", dir}, &out, &out); code != 0 {
		t.Fatal(out.String())
	}
	if _, err := os.Stat(extra); !os.IsNotExist(err) {
		t.Errorf("a page of no command stays: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "apply.md"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"-pages", dir, "-check"}, &out, &out); code != 1 || !strings.Contains(out.String(), "apply.md is out of date") {
		t.Errorf("%d: %s", code, out.String())
	}
}

func TestManual(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	var out strings.Builder
	if code := run([]string{"-man", dir}, &out, &out); code != 0 {
		t.Fatalf("%d: %s", code, out.String())
	}
	page, err := os.ReadFile(filepath.Join(dir, "orrery-apply.1"))
	if err != nil || !strings.Contains(string(page), "Nov 2023") {
		t.Errorf("%s, %v", page, err)
	}
}
