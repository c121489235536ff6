package acting_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/clitest/golden"
	"github.com/orreryhq/orrery/cli/internal/clitest/tmuxtest"
)

func TestSmallTerminals(t *testing.T) {
	program := tmuxtest.Build(t)
	for _, size := range [][2]int{{40, 10}, {20, 5}} {
		name := fmt.Sprintf("tmux-%dx%d-", size[0], size[1])
		server := clitest.NewServer(t)
		dir := t.TempDir()
		editor := filepath.Join(dir, "editor")
		if err := os.WriteFile(editor, []byte("#!/bin/sh\nhead -1 \"$1\" | cut -c 1-16\nread -r line </dev/tty\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		env := []string{
			"ORRERY_SERVER=" + server.URL, "ORRERY_TOKEN=token", "ORRERY_CONFIG=" + filepath.Join(dir, "config.yaml"), "NO_COLOR=1",
			"TMPDIR=" + dir, "EDITOR=" + editor, "PS1=$ ", "PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH"),
		}
		term := tmuxtest.Start(t, size[0], size[1], env, "bash", "--norc", "--noprofile")
		screen := func(what, line, text string) {
			t.Helper()
			term.Press("clear; "+line, "Enter")
			golden.Equal(t, name+what+".txt", term.WaitFor(text, "clear;"))
		}
		screen("table", "orrery get instances; echo end", "end\n$")
		screen("question", "orrery stop --group lobby", "[y/N]")
		term.Press("n", "Enter")
		golden.Equal(t, name+"answered.txt", term.WaitFor("\n$\n"))
		screen("edit", "orrery edit group lobby", "# Change the")
		term.Press("", "Enter")
		golden.Equal(t, name+"edited.txt", term.WaitFor("\n$\n"))
	}
}
