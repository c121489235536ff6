package cli_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// terminal is a real terminal in which a shell of the user runs.
type terminal struct {
	u      *user
	socket string
}

func (u *user) terminal(width, height string) *terminal {
	u.t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		need(u.t, "tmux", err)
	}
	term := &terminal{u: u, socket: u.home + "/tmux"}
	term.tmux("new-session", "-d", "-s", "test", "-x", width, "-y", height, "env PS1='$ ' HISTFILE= bash --norc --noprofile")
	u.t.Cleanup(func() { term.tmux("kill-server") })
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.u.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", term.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env, cmd.Dir = term.u.env, term.u.home
	out, err := cmd.CombinedOutput()
	if err != nil {
		term.u.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// enter types a line.
func (term *terminal) enter(line string) {
	term.u.t.Helper()
	term.tmux("send-keys", "-t", "test", "-l", line)
	term.tmux("send-keys", "-t", "test", "Enter")
}

// awaits waits until the screen shows a text.
func (term *terminal) awaits(text string) {
	term.u.t.Helper()
	await.That(term.u.t, "a screen with "+text, func() string {
		screen := term.tmux("capture-pane", "-p", "-t", "test")
		return await.Unless(strings.Contains(screen, text), "the screen is\n%s", screen)
	})
}

func TestQuestionsInATerminal(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	u := newUser(t)
	u.logIn(c)
	u.given(group("echo", 2), "apply", "--wait", "-f", "-")
	term := u.terminal("100", "30")
	term.enter("orrery freeze --group echo")
	term.awaits("[y/N]")
	term.enter("n")
	term.awaits("nothing was changed")
	if got := u.ok("get", "instance", "echo-1", "-o", "jsonpath=frozen"); got != "false\n" {
		t.Errorf("after no, frozen is %q", got)
	}
	term.enter("clear; orrery freeze --group echo")
	term.awaits("[y/N]")
	term.enter("y")
	await.That(t, "both frozen", func() string {
		got := u.ok("get", "instances", "--group", "echo", "-o", "jsonpath={.items[*].frozen}")
		return await.Unless(got == "true\ntrue\n", "%q", got)
	})
}

func TestEditInATerminal(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	u := newUser(t)
	u.logIn(c)
	u.given(group("echo", 1), "apply", "--wait", "-f", "-")
	term := u.terminal("100", "30")
	term.enter(`EDITOR="sed -i s/minInstances:.*/minInstances:\ 2/" orrery edit group echo`)
	await.That(t, "the edited group", func() string {
		got := u.ok("get", "group", "echo", "-o", "jsonpath=minInstances")
		return await.Unless(got == "2\n", "%q; the screen is\n%s", got, term.tmux("capture-pane", "-p", "-t", "test"))
	})
	term.enter("clear; EDITOR=true orrery edit group echo; echo code $?")
	term.awaits("code 0")
}

func TestAttachInATerminal(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	u := newUser(t)
	u.logIn(c)
	u.given(group("echo", 1), "apply", "--wait", "-f", "-")
	term := u.terminal("100", "30")
	term.enter("orrery attach echo-1")
	term.awaits("echo-1")
	term.enter("good morning")
	await.That(t, "the line in the console", func() string {
		return await.Unless(strings.Contains(u.ok("logs", "echo-1"), "good morning"), "%s", term.tmux("capture-pane", "-p", "-t", "test"))
	})
	term.tmux("send-keys", "-t", "test", "C-d")
	term.awaits("\n$\n") // the prompt of the shell
	term.enter("echo left with $?")
	term.awaits("left with 0")
}
