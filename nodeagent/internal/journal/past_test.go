package journal_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/nodeagent/internal/journal"
)

// pasts makes the past of each agent on one directory.
func pasts(t *testing.T) (dir string, begin func() *journal.Past) {
	dir, n := t.TempDir(), 0
	return dir, func() *journal.Past {
		t.Helper()
		j, err := journal.Open(dir, "boot", func() string { return "uuid" })
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		return j.Past(func() string { n++; return fmt.Sprint("past-", n) }, slog.New(slog.DiscardHandler))
	}
}

func TestThePastChangesItsNameWheneverTheStoreHasForgottenSomething(t *testing.T) {
	dir, begin := pasts(t)
	p := begin()
	steps := []struct {
		what    string
		happens func()
		changed bool
	}{
		{"the first join", func() { p.Wrote(0, 5) }, false},
		{"a later one", func() { p.Wrote(5, 9) }, false},
		{"another agent on the directory", func() { p = begin() }, false},
		{"its join", func() { p.Wrote(9, 12) }, false},
		{"a store from a backup", func() { p.Wrote(5, 8) }, true},
		{"a join after it", func() { p.Wrote(8, 10) }, false},
		{"the report of a start", func() { p.Reported(14) }, false},
		{"another agent that joins and finds that report", func() { p = begin(); p.Wrote(10, 15); p.Found(14) }, false},
		{"or one of its own that it did not note", func() { p.Found(16) }, false},
		{"an older one", func() { p = begin(); p.Wrote(15, 17); p.Found(13) }, true},
		{"the same again", func() { p.Found(13) }, false},
		{"a store that is empty", func() { p.Wrote(0, 3) }, true},
		{"a store that goes back under our eyes", func() { p.Rewound() }, true},
		{"another agent after that", func() { p = begin() }, false},
		{"a file that is damaged", func() {
			if err := os.WriteFile(filepath.Join(dir, journal.PastFile), []byte("?"), 0o600); err != nil {
				t.Fatal(err)
			}
			p = begin()
		}, true},
	}
	for _, s := range steps {
		before := p.Name()
		if s.happens(); (p.Name() != before) != s.changed {
			t.Errorf("%s: from %s to %s", s.what, before, p.Name())
		}
	}
}

// An agent that was cut off for long finds no history to resume from, and it may restart
// before the grace of what it runs has passed.
func TestWhatWasGivenUpWithTheNodeStaysSo(t *testing.T) {
	_, begin := pasts(t)
	p := begin()
	p.Wrote(0, 5)
	first := p.Name()
	p.Rewound()
	second := p.Name()
	if p.Deleted(4) || p.Deleted(0) || p.GivenUp(first) {
		t.Fatal("the deletion of a record that the agent did not write last counts")
	}
	if !p.Deleted(5) {
		t.Fatal("the deletion of the agent's record is not recognised")
	}
	p.Wrote(5, 9)
	third := p.Name()
	p.Rewound()
	p = begin()
	p.Wrote(9, 12)
	for _, tt := range []struct {
		began, name string
		givenUp     bool
	}{
		{"long before", first, true},
		{"after the store may have lost something", second, true},
		{"after the node's return", third, false},
		{"after the store may have lost something again", p.Name(), false},
	} {
		if got := p.GivenUp(tt.name); got != tt.givenUp {
			t.Errorf("what began %s was given up: %v", tt.began, got)
		}
	}
}
