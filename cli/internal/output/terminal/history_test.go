package terminal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/output/terminal"
)

func open(t *testing.T, path string) *terminal.History {
	t.Helper()
	h, err := terminal.OpenHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAHistoryIsStoredForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "lobby")
	h := open(t, path)
	for _, line := range []string{"list", "list", "", " secret", "~.", "say hi"} {
		h.Add(line)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	h = open(t, path)
	if h.Len() != 2 || h.At(0) != "say hi" || h.At(1) != "list" {
		t.Errorf("%+v", h)
	}
}

func TestAHistoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lobby")
	h := open(t, path)
	for n := range 1500 {
		h.Add(fmt.Sprint("line ", n))
	}
	if h.Len() != 1000 || h.At(0) != "line 1499" {
		t.Errorf("%d lines, the newest is %s", h.Len(), h.At(0))
	}
	if h = open(t, path); h.Len() != 1000 || h.At(999) != "line 500" {
		t.Errorf("%d lines after opening it again", h.Len())
	}
	content, err := os.ReadFile(path)
	if lines := strings.Count(string(content), "\n"); err != nil || lines != 1000 {
		t.Errorf("the file has %d lines, %v", lines, err)
	}
}

func TestCompletion(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "lobby"))
	for _, line := range []string{"say hello all", "say hello you", "save"} {
		h.Add(line)
	}
	words := &terminal.Words{}
	words.Learn("before: help was not typed")
	words.Typed("help")
	for _, line := range []string{"[12:00:00] [Server thread/INFO]: /gamemode <mode>", "[10:02:04 INFO]: stop: save and stop", "Unrelated text"} {
		words.Learn(line)
	}
	words.Typed("list")
	words.Learn("gamble: this is not help any more")
	for typed, want := range map[string]string{
		"g":          "gamemode []",
		"st":         "stop []",
		"sa":         "sa [save say]",
		"say":        "say hello  []",
		"say hello ": "say hello  [all you]",
		"bef":        "bef []",
		"x":          "x []",
	} {
		line, choices := words.Complete(typed, h)
		if got := fmt.Sprintf("%s %v", line, choices); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
