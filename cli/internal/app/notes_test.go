package app_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
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

func TestAReasonOfALostConnectionIsSaidOnceInARow(t *testing.T) {
	var said []string
	lost := app.Reconnecting(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	for _, reason := range []string{"EOF", "refused", "refused", "EOF"} {
		lost(errors.New(reason))
	}
	want := []string{"connection lost: EOF; reconnecting", "connection lost: refused; reconnecting", "connection lost: EOF; reconnecting"}
	if !slices.Equal(said, want) {
		t.Errorf("it said %q, want %q", said, want)
	}
}
