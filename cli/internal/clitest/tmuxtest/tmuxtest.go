// Package tmuxtest runs the program in a real terminal for tests.
package tmuxtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience is how long a screen may take to change on a loaded machine.
const patience = 2 * time.Minute

// Terminal is a terminal in which a program runs.
type Terminal struct {
	t      *testing.T
	socket string
}

// Build builds the program orrery and returns its path.
func Build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orrery")
	build := exec.Command("go", "build", "-o", path, "github.com/orreryhq/orrery/cli/cmd/orrery")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// Start runs a program in a terminal of that size. It skips the test without tmux, unless ORRERY_CI is 1.
func Start(t *testing.T, width, height int, env []string, program ...string) *Terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("ORRERY_CI") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "orrery-tmux") // short: paths of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	term := &Terminal{t, filepath.Join(dir, "s")}
	args := []string{"-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height)}
	args = append(args, "env")
	args = append(append(append(args, env...), program...), ";", "set-option", "remain-on-exit", "on")
	term.tmux(args...)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() })
	return term
}

func (term *Terminal) tmux(args ...string) string {
	term.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Press presses keys, named like those of tmux: Enter, Up, C-d; other texts are typed.
func (term *Terminal) Press(keys ...string) {
	term.t.Helper()
	term.tmux(append([]string{"send-keys"}, keys...)...)
}

// Resize changes the size of the terminal.
func (term *Terminal) Resize(width, height int) {
	term.t.Helper()
	term.tmux("resize-window", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height))
}

// Screen returns the text of the screen without spaces at the ends of lines.
func (term *Terminal) Screen() string {
	term.t.Helper()
	lines := strings.Split(term.tmux("capture-pane", "-p"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// WaitFor waits until the screen has a text and none of the others, and returns the screen.
func (term *Terminal) WaitFor(text string, without ...string) string {
	term.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		screen := term.Screen()
		if strings.Contains(screen, text) && !containsAny(screen, without) {
			return screen
		}
		if time.Now().After(deadline) {
			term.t.Fatalf("the screen has no %q without %q:\n%s", text, without, screen)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// WaitForExit waits until the program has ended.
func (term *Terminal) WaitForExit() {
	term.t.Helper()
	deadline := time.Now().Add(patience)
	for strings.TrimSpace(term.tmux("list-panes", "-F", "#{pane_dead}")) != "1" {
		if time.Now().After(deadline) {
			term.t.Fatalf("the program has not ended:\n%s", term.Screen())
		}
		<-time.After(20 * time.Millisecond)
	}
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
