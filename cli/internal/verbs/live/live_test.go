package live_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/cli/internal/exit"
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
	g := newGateway(t)
	g.add("old", "lobby-1", "lobby", "old output\n", crashed)
	g.add("u1", "lobby-1", "lobby", numbered(1, 2500), crashed)
	g.add("u2", "lobby-2", "lobby", "\x1b[31mred\x1b[0m\x1b[2J\r\nlast", crashed)
	g.add("u3", "duel-1", "duel", "duel\n", crashed)
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
			stdout, stderr, err := g.run(t, append([]string{"logs"}, test.args...)...)
			if err != nil || stdout != test.stdout || stderr != test.stderr {
				t.Errorf("%v\n%.300q, want\n%.300q\n%q, want\n%q", err, stdout, test.stdout, stderr, test.stderr)
			}
		})
	}
}

func TestBadInputIsAUsageError(t *testing.T) {
	g := newGateway(t)
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
		{"attach"},
		{"attach", "lobby-1", "-n", "-5"},
		{"events", "-o", "yaml"},
	} {
		if _, _, err := g.run(t, args...); exit.CodeOf(err) != exit.Usage {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestFollowingSurvivesALostConnection(t *testing.T) {
	g := newGateway(t)
	g.cut = 40
	g.add("u1", "lobby-1", "lobby", numbered(1, 100), crashed)
	stdout, stderr, err := g.run(t, "logs", "lobby-1", "-f", "-n", "-1")
	if err != nil || stdout != numbered(1, 100) || !strings.Contains(stderr, "connection lost: ") {
		t.Errorf("%v\n%s\n%s", err, stdout, stderr)
	}
}

func TestFollowingAGroupTakesNewServers(t *testing.T) {
	g := newGateway(t)
	g.add("u1", "lobby-1", "lobby", "one\n", "")
	r := g.launch(t, "", "logs", "-f", "--group", "lobby")
	r.out.waitFor(t, "lobby-1  one\n")
	g.add("u2", "lobby-2", "lobby", "first\nsecond\n", "")
	g.events <- `{"type":"INSTANCE_STATE_CHANGED","instanceId":"lobby-2","uid":"u2","group":"lobby","newState":"STARTING"}`
	r.out.waitFor(t, "lobby-2  first\nlobby-2  second\n")
	g.add("u1", "lobby-1", "lobby", "one\n", crashed)
	r.err.waitFor(t, "lobby-1: ended: CRASHED, exit code 3, it crashed\n")
	r.stop()
	if err := <-r.result; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestEvents(t *testing.T) {
	for format, want := range map[string]string{
		"":     "INSTANCE_STATE_CHANGED    lobby-1           RUNNING → CRASHED  it crashed  reason=ProcessExited\n",
		"json": `{"id":"10","type":"INSTANCE_STATE_CHANGED","instanceId":"lobby-1","oldState":"RUNNING","newState":"CRASHED","reason":"ProcessExited","message":"it crashed"}` + "\n",
	} {
		g := newGateway(t)
		r := g.launch(t, "", "events", "-o", format)
		g.events <- `{"type":"INSTANCE_STATE_CHANGED","instanceId":"lobby-1","oldState":"RUNNING","newState":"CRASHED","reason":"ProcessExited","message":"it crashed"}`
		r.out.waitFor(t, want)
		r.stop()
		if err := <-r.result; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestALogOfANodeIsFollowed(t *testing.T) {
	g := newGateway(t)
	r := g.launch(t, "", "logs", "node", "node-1", "-f")
	r.out.waitFor(t, "a/b: disk is full: no space path=/data\n")
}

func TestAScriptTypesItsLines(t *testing.T) {
	g := newGateway(t)
	g.add("u1", "lobby-1", "lobby", "before\n", "")
	r := g.launch(t, "say one\nsay two\n", "attach", "lobby-1")
	if err := <-r.result; err != nil {
		t.Error(err)
	}
	if got := r.out.String(); got != "you typed say one\nyou typed say two\n" {
		t.Errorf("printed %q", got)
	}
}
