package journal_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/nodeagent/internal/journal"
)

func TestThePastChangesItsNameWheneverTheStoreHasForgottenSomething(t *testing.T) {
	dir, n := t.TempDir(), 0
	begin := func() *journal.Past {
		j, err := journal.Open(dir, "boot", func() string { return "uuid" })
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		return j.Past(func() string { n++; return fmt.Sprint("past-", n) }, slog.New(slog.DiscardHandler))
	}
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
