package journal_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
)

// pasts opens the history of each agent on one directory.
func pasts(t *testing.T) (dir string, begin func() *journal.History) {
	dir, n := t.TempDir(), 0
	return dir, func() *journal.History {
		t.Helper()
		j, err := journal.Open(dir, "boot", func() string { return "uuid" })
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		return j.History(func() string { n++; return fmt.Sprint("past-", n) }, slog.New(slog.DiscardHandler))
	}
}

func TestHistoryIsRenamedWhenStoreLosesData(t *testing.T) {
	dir, begin := pasts(t)
	p := begin()
	steps := []struct {
		what    string
		happens func()
		changed bool
	}{
		{"the first join", func() { p.RecordWritten(0, 5) }, false},
		{"a later join", func() { p.RecordWritten(5, 9) }, false},
		{"another agent on the directory", func() { p = begin() }, false},
		{"its join", func() { p.RecordWritten(9, 12) }, false},
		{"a restored store", func() { p.RecordWritten(5, 8) }, true},
		{"a join after the restore", func() { p.RecordWritten(8, 10) }, false},
		{"the report of a start", func() { p.Reported(14) }, false},
		{"another agent that finds that report", func() { p = begin(); p.RecordWritten(10, 15); p.ReportFound(14) }, false},
		{"a newer report that was not recorded", func() { p.ReportFound(16) }, false},
		{"an older report", func() { p = begin(); p.RecordWritten(15, 17); p.ReportFound(13) }, true},
		{"the same again", func() { p.ReportFound(13) }, false},
		{"an empty store", func() { p.RecordWritten(0, 3) }, true},
		{"a store that goes back while watched", func() { p.Rewound() }, true},
		{"another agent after that", func() { p = begin() }, false},
		{"a file that is damaged", func() {
			if err := os.WriteFile(filepath.Join(dir, journal.HistoryFile), []byte("?"), 0o600); err != nil {
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

// An agent that was cut off for a long time finds no history to resume from, and it may restart
// during the grace of its orphans.
func TestAbandonedRunsStayAbandoned(t *testing.T) {
	_, begin := pasts(t)
	p := begin()
	p.RecordWritten(0, 5)
	first := p.Name()
	p.Rewound()
	second := p.Name()
	if p.RecordDeleted(4) || p.RecordDeleted(0) || p.Abandoned(first) {
		t.Fatal("the deletion of a record that the agent did not write last counts")
	}
	if !p.RecordDeleted(5) {
		t.Fatal("the deletion of the agent's record is not recognised")
	}
	p.RecordWritten(5, 9)
	third := p.Name()
	p.Rewound()
	p = begin()
	p.RecordWritten(9, 12)
	for _, tt := range []struct {
		began, name string
		givenUp     bool
	}{
		{"long before", first, true},
		{"after a possible loss of data", second, true},
		{"after the node's return", third, false},
		{"after another possible loss", p.Name(), false},
	} {
		if got := p.Abandoned(tt.name); got != tt.givenUp {
			t.Errorf("what began %s was given up: %v", tt.began, got)
		}
	}
}
