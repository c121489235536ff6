package app_test

import (
	"bytes"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
)

func TestNotesAndReportsHaveNoControlCharacters(t *testing.T) {
	var out, notes bytes.Buffer
	a := &app.App{Out: &out, Err: &notes, Env: func(string) string { return "" }}
	a.Notef("there is no group %s", "a\x1b[2Jb\r")
	if err := a.Say(nil, "", "group %s created", "a\x1b[2Jb\r"); err != nil {
		t.Fatal(err)
	}
	if got, want := notes.String()+out.String(), "there is no group a[2Jb\ngroup a[2Jb created\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
