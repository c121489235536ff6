package console_test

import (
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
