package app

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
)

func editing(t *testing.T, editor string) (*App, *bytes.Buffer) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var notes bytes.Buffer
	env := map[string]string{"EDITOR": editor}
	return &App{In: strings.NewReader(""), Out: &notes, Err: &notes, Env: func(name string) string { return env[name] }, Interactive: true}, &notes
}

func TestEditReturnsWhatTheEditorSaved(t *testing.T) {
	a, _ := editing(t, "sed -i s/old/new/")
	got, err := a.Edit(t.Context(), "lobby.yaml", []byte("old text\n"))
	if err != nil || string(got) != "new text\n" {
		t.Fatalf("got %q, %v", got, err)
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("the temporary file was not removed: %v", left)
	}
}

func TestEditKeepsTheTextWhenTheEditorFails(t *testing.T) {
	a, _ := editing(t, "sh -c 'echo mine >\"$1\"; exit 3' sh")
	_, err := a.Edit(t.Context(), "lobby.yaml", []byte("old"))
	hint := exit.HintOf(err)
	path, ok := strings.CutPrefix(hint, "the text is in ")
	if !ok {
		t.Fatalf("the error %v has the hint %q", err, hint)
	}
	if kept, err := os.ReadFile(path); err != nil || string(kept) != "mine\n" {
		t.Errorf("kept %q, %v", kept, err)
	}
}

func TestEditKeepsTheTextWhenTheContextEnds(t *testing.T) {
	a, _ := editing(t, "sed -i s/old/new/")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.Edit(ctx, "lobby.yaml", []byte("old"))
	path, _ := strings.CutPrefix(exit.HintOf(err), "the text is in ")
	if kept, readErr := os.ReadFile(path); readErr != nil || string(kept) != "new" || exit.CodeOf(err) != exit.Interrupted {
		t.Errorf("error %v, kept %q, %v", err, kept, readErr)
	}
}

func TestEditNeedsATerminal(t *testing.T) {
	a, _ := editing(t, "true")
	a.Interactive = false
	if _, err := a.Edit(t.Context(), "lobby.yaml", nil); exit.CodeOf(err) != exit.Usage {
		t.Errorf("got %v", err)
	}
}

func TestKeepTextNamesTheFile(t *testing.T) {
	a, notes := editing(t, "")
	a.KeepText("lobby.yaml", []byte("mine"))
	path, _ := strings.CutPrefix(strings.TrimSpace(notes.String()), "your text is in ")
	if kept, err := os.ReadFile(path); err != nil || string(kept) != "mine" {
		t.Errorf("kept %q, %v (%s)", kept, err, notes)
	}
}

func TestKeepEditedKeepsBothSidesOfAConflict(t *testing.T) {
	now := func() (string, error) { return "theirs", nil }
	a, notes := editing(t, "")
	a.KeepEdited(&orrery.Error{Status: http.StatusPreconditionFailed}, "dir/lobby.yaml", []byte("mine"), now)
	found := regexp.MustCompile(`diff (\S+) (\S+)`).FindStringSubmatch(notes.String())
	if found == nil {
		t.Fatalf("no files are named: %s", notes)
	}
	for i, want := range []string{"theirs", "mine"} {
		if kept, err := os.ReadFile(found[i+1]); err != nil || string(kept) != want {
			t.Errorf("%s has %q, %v; want %q", found[i+1], kept, err, want)
		}
	}
	a, notes = editing(t, "")
	a.KeepEdited(&orrery.Error{Status: http.StatusConflict}, "lobby.yaml", []byte("mine"), now)
	if strings.Contains(notes.String(), "diff") || !strings.Contains(notes.String(), "your text is in") {
		t.Errorf("a refusal that is no conflict prints %s", notes)
	}
}
