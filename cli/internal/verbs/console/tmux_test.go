package console_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest/consoletest"
	"github.com/orreryhq/orrery/cli/internal/clitest/golden"
	"github.com/orreryhq/orrery/cli/internal/clitest/tmuxtest"
)

func TestAttachInATerminal(t *testing.T) {
	g := consoletest.New(t)
	g.Add("u1", "lobby-1", "lobby", "[12:00:00 INFO]: Done\n", "")
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("current: test\ncontexts: [{name: test, servers: [\""+g.URL+"\"]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"ORRERY_TOKEN=token", "ORRERY_CONFIG=" + config, "XDG_STATE_HOME=" + dir, "NO_COLOR=1"}
	program := tmuxtest.Build(t)
	term := tmuxtest.Start(t, 80, 24, env, program, "attach", "lobby-1")
	term.WaitFor("INFO]: Done")
	term.Press("say hello", "Enter")
	term.WaitFor("you typed say hello")
	term.Press("half a li")
	term.WaitFor("half a li")
	g.Print("u1", "[12:00:01 INFO]: printed meanwhile\n")
	golden.Equal(t, "attach-typing.txt", term.WaitFor("printed meanwhile"))
	term.Press("C-u")
	term.Press("Up")
	golden.Equal(t, "attach-history.txt", term.WaitFor("meanwhile\n> say hello"))
	for range 2 {
		if line := <-g.Typed; line != "say hello" {
			t.Errorf("typed %q", line)
		}
		term.Press("Enter")
	}
	term.Press("~.", "Enter")
	term.WaitForExit()
	content, err := os.ReadFile(filepath.Join(dir, "orrery", "history", "lobby@test"))
	if err != nil || string(content) != "say hello\n" {
		t.Errorf("the history is %q, %v", content, err)
	}
}

func TestAttachInASmallTerminal(t *testing.T) {
	program := tmuxtest.Build(t)
	for _, size := range [][2]int{{40, 10}, {20, 5}} {
		g := consoletest.New(t)
		g.Add("u1", "lobby-1", "lobby", "[12:00:00 INFO]: Done (3.2 s)! For help, type help\n", "")
		dir := t.TempDir()
		env := []string{"ORRERY_SERVER=" + g.URL, "ORRERY_TOKEN=token", "ORRERY_CONFIG=" + filepath.Join(dir, "config.yaml"), "XDG_STATE_HOME=" + dir, "NO_COLOR=1"}
		term := tmuxtest.Start(t, size[0], size[1], env, program, "attach", "lobby-1")
		name := fmt.Sprintf("attach-%dx%d-", size[0], size[1])
		golden.Equal(t, name+"start.txt", term.WaitFor("help\n>"))
		// The line is longer than the terminal is wide.
		term.Press("say this line is longer than the terminal END")
		golden.Equal(t, name+"long.txt", term.WaitFor("END"))
		g.Print("u1", "printed meanwhile\n")
		golden.Equal(t, name+"meanwhile.txt", term.WaitFor("printed meanwhile"))
		term.Press("Home", "X")
		golden.Equal(t, name+"begin.txt", term.WaitFor("> Xsay"))
		term.Press("End", "C-u", "x", "Enter")
		if line := <-g.Typed; line != "x" {
			t.Errorf("typed %q", line)
		}
		term.Press("C-d")
		term.WaitForExit()
	}
}
