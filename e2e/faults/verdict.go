package main

import (
	"github.com/orreryhq/orrery/e2e/faults/record"
)

// check looks at all that was recorded.
func (t *trial) check() []string {
	events, err := t.history.Events()
	if err != nil {
		return collect(err)
	}
	runs, err := record.Read(t.recordDir())
	if err != nil {
		return collect(err)
	}
	t.runs, t.revisions = len(runs), t.history.Rev()
	_ = events
	return t.broken
}
