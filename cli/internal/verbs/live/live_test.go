package live_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/cli/internal/clitest/consoletest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/verbs/live"
)

// numbered returns lines with numbers.
func numbered(from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		fmt.Fprintf(&b, "line %d\n", n)
	}
	return b.String()
}

const crashed = `{"state":"CRASHED","reason":"ProcessExited","message":"it crashed","generation":1,"exitCode":3}`

func TestLogs(t *testing.T) {
	g := consoletest.New(t)
	g.Add("old", "lobby-1", "lobby", "old output\n", crashed)
	g.Add("u1", "lobby-1", "lobby", numbered(1, 2500), crashed)
	g.Add("u2", "lobby-2", "lobby", "\x1b[31mred\x1b[0m\x1b[2J\r\nlast", crashed)
	g.Add("u3", "duel-1", "duel", "duel\n", crashed)
	const ending = "lobby-1: 1,234 lines skipped: the server prints faster than 1 MiB/s\nlobby-1: ended: CRASHED, exit code 3, it crashed\n"
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC).Local().Format(time.DateTime) + " "
	for name, test := range map[string]struct {
		args           []string
		stdout, stderr string
	}{
		"the last lines":                      {[]string{"lobby-1", "-n", "2"}, numbered(2499, 2500), ""},
		"a hundred by default":                {[]string{"lobby-1"}, numbered(2401, 2500), ""},
		"more than a page":                    {[]string{"lobby-1", "-n", "2200"}, numbered(301, 2500), ""},
		"all":                                 {[]string{"lobby-1", "-n", "-1"}, numbered(1, 2500), ""},
		"none":                                {[]string{"lobby-1", "-n", "0"}, "", ""},
		"all with times":                      {[]string{"lobby-1", "-n", "-1", "--timestamps"}, strings.ReplaceAll(numbered(1, 2500), "line", at+"line"), ""},
		"those that match":                    {[]string{"lobby-1", "--grep", "line 1000"}, "line 1000\n", ""},
		"a pipe gets no control sequences":    {[]string{"lobby-2", "-n", "-1"}, "red\nlast\n", ""},
		"several have their names before":     {[]string{"lobby-2", "duel-1", "-n", "1"}, "lobby-2  last\nduel-1  duel\n", ""},
		"one has it on request":               {[]string{"duel-1", "--prefix"}, "duel-1  duel\n", ""},
		"a group":                             {[]string{"--group", "duel"}, "duel\n", ""},
		"labels":                              {[]string{"-l", "mode=duels"}, "duel\n", ""},
		"labels that nothing has":             {[]string{"-l", "mode=duels,mode!=duels"}, "", "no server is selected\n"},
		"the one before":                      {[]string{"lobby-1", "--previous"}, "old output\n", ""},
		"followed to its end":                 {[]string{"lobby-1", "-f", "-n", "2"}, numbered(2499, 2500), ending},
		"followed from the beginning":         {[]string{"lobby-1", "-f", "-n", "-1"}, numbered(1, 2500), ending},
		"followed with times":                 {[]string{"lobby-1", "-f", "-n", "2", "--timestamps"}, strings.ReplaceAll(numbered(2499, 2500), "line", at+"line"), ending},
		"followed with a filter":              {[]string{"lobby-1", "-f", "--grep", "line 2[45]00"}, "line 2400\nline 2500\n", ending},
		"a time that nothing is newer than":   {[]string{"lobby-1", "-f", "--since", "2026-01-02T15:04:06Z", "-n", "0"}, "", ending},
		"the system":                          {[]string{"system"}, at + "WARN  gateway-1 a/b: disk is full: no space path=/data\n", "the log of gateway-2 is missing: it does not answer\n"},
		"the kind may be before the instance": {[]string{"instance", "duel-1"}, "duel\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, err := g.Run(t, live.Commands, append([]string{"logs"}, test.args...)...)
			if err != nil || stdout != test.stdout || stderr != test.stderr {
				t.Errorf("%v\n%.300q, want\n%.300q\n%q, want\n%q", err, stdout, test.stdout, stderr, test.stderr)
			}
		})
	}
}

func TestBadInputIsAUsageError(t *testing.T) {
	g := consoletest.New(t)
	for _, args := range [][]string{
		{"logs"},
		{"logs", "lobby-1", "-n", "-2"},
		{"logs", "lobby-1", "--since", "yesterday"},
		{"logs", "lobby-1", "--grep", "("},
		{"logs", "lobby-1", "-f", "--until", "1m"},
		{"logs", "lobby-1", "--group", "lobby"},
		{"logs", "lobby-1", "--level", "WARN"},
		{"logs", "-l", "mode in (a)"},
		{"logs", "--group", "lobby", "--previous"},
		{"logs", "node"},
		{"logs", "system", "--group", "lobby"},
		{"events", "-o", "yaml"},
	} {
		if _, _, err := g.Run(t, live.Commands, args...); exit.CodeOf(err) != exit.Usage {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestFollowingSurvivesALostConnection(t *testing.T) {
	g := consoletest.New(t)
	g.Cut(40)
	g.Add("u1", "lobby-1", "lobby", numbered(1, 100), crashed)
	stdout, stderr, err := g.Run(t, live.Commands, "logs", "lobby-1", "-f", "-n", "-1")
	if err != nil || stdout != numbered(1, 100) || !strings.Contains(stderr, "connection lost: ") {
		t.Errorf("%v\n%s\n%s", err, stdout, stderr)
	}
}

func TestFollowingAGroupTakesNewServers(t *testing.T) {
	g := consoletest.New(t)
	g.Add("u1", "lobby-1", "lobby", "one\n", "")
	r := g.Launch(t, live.Commands, "", "logs", "-f", "--group", "lobby")
	r.Out.WaitFor(t, "lobby-1  one\n")
	g.Add("u2", "lobby-2", "lobby", "first\nsecond\n", "")
	g.Events <- `{"type":"INSTANCE_STATE_CHANGED","instanceId":"lobby-2","uid":"u2","group":"lobby","newState":"STARTING"}`
	r.Out.WaitFor(t, "lobby-2  first\nlobby-2  second\n")
	g.Add("u1", "lobby-1", "lobby", "one\n", crashed)
	r.Err.WaitFor(t, "lobby-1: ended: CRASHED, exit code 3, it crashed\n")
	r.Stop()
	if err := <-r.Result; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestEvents(t *testing.T) {
	for format, want := range map[string]string{
		"":     "INSTANCE_STATE_CHANGED    lobby-1           RUNNING → CRASHED  it crashed  reason=ProcessExited\n",
		"json": `{"id":"10","type":"INSTANCE_STATE_CHANGED","instanceId":"lobby-1","oldState":"RUNNING","newState":"CRASHED","reason":"ProcessExited","message":"it crashed"}` + "\n",
	} {
		g := consoletest.New(t)
		r := g.Launch(t, live.Commands, "", "events", "-o", format)
		g.Events <- `{"type":"INSTANCE_STATE_CHANGED","instanceId":"lobby-1","oldState":"RUNNING","newState":"CRASHED","reason":"ProcessExited","message":"it crashed"}`
		r.Out.WaitFor(t, want)
		r.Stop()
		if err := <-r.Result; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestALogOfANodeIsFollowed(t *testing.T) {
	g := consoletest.New(t)
	r := g.Launch(t, live.Commands, "", "logs", "node", "node-1", "-f")
	r.Out.WaitFor(t, "a/b: disk is full: no space path=/data\n")
}
