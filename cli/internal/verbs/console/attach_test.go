package console_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/clitest/consoletest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/verbs/console"
	"github.com/spf13/cobra"
)

func commands(a *app.App) []*cobra.Command { return []*cobra.Command{console.Command(a)} }

func TestAScriptTypesItsLines(t *testing.T) {
	g := consoletest.New(t)
	g.Add("u1", "lobby-1", "lobby", "before\n", "")
	r := g.Launch(t, commands, "say one\nsay two\n", "attach", "lobby-1")
	if err := <-r.Result; err != nil {
		t.Error(err)
	}
	if got := r.Out.String(); got != "you typed say one\nyou typed say two\n" {
		t.Errorf("printed %q", got)
	}
}

func TestAScriptEndsWithTheServer(t *testing.T) {
	g := consoletest.New(t)
	g.Add("u1", "lobby-1", "lobby", "last words\n", `{"state":"CRASHED","message":"it crashed","generation":1,"exitCode":3}`)
	stdout, stderr, err := g.Run(t, commands, "attach", "lobby-1", "-n", "5", "--linger", "1h")
	if err != nil || stdout != "last words\n" || stderr != "-- lobby-1 ended: CRASHED, exit code 3, it crashed\n" {
		t.Errorf("%v\n%s\n%s", err, stdout, stderr)
	}
}

func TestBadInputIsAUsageError(t *testing.T) {
	g := consoletest.New(t)
	for _, args := range [][]string{{"attach"}, {"attach", "lobby-1", "-n", "-5"}, {"attach", "instance", "a", "b"}, {"attach", "node", "a"}} {
		if _, _, err := g.Run(t, commands, args...); exit.CodeOf(err) != exit.Usage {
			t.Errorf("%v: %v", args, err)
		}
	}
}
