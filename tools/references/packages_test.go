package main

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestPackageSentences(t *testing.T) {
	got, err := packageSentences(fstest.MapFS{
		"libs/b/b.go":            {Data: []byte("// Package b keeps things. It is small.\npackage b\n")},
		"libs/b/more.go":         {Data: []byte("package b\n")},
		"libs/a/cmd/main.go":     {Data: []byte("// Command cmd runs a.\npackage main\n")},
		"libs/a/a_test.go":       {Data: []byte("// Package a is a test.\npackage a\n")},
		"libs/a/testdata/x.go":   {Data: []byte("not Go")},
		"libs/.hidden/hidden.go": {Data: []byte("// Package hidden is hidden.\npackage hidden\n")},
	})
	want := []packageSentence{{"libs/a/cmd", "Command cmd runs a."}, {"libs/b", "keeps things."}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("packageSentences = %v, %v, want %v", got, err, want)
	}
}
