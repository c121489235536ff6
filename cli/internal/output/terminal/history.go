package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/atomicfile"
)

// maxHistory is how many lines a History keeps.
const maxHistory = 1000

// History has the lines that were typed before, and stores new ones in a file. It belongs to one Editor.
type History struct {
	path string
	// lines are oldest first.
	lines []string
}

// StateDir returns the directory for state of the user.
func StateDir(env func(string) string) (string, error) {
	if dir := env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "orrery"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("cannot find the directory for state: %w; set XDG_STATE_HOME to a directory", err)
	}
	return filepath.Join(home, ".local", "state", "orrery"), nil
}

// OpenHistory reads a file of lines, which need not exist. It shortens a file that is too long.
func OpenHistory(path string) (*History, error) {
	h := &History{path: path}
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return h, fmt.Errorf("cannot read the history: %w", err)
	}
	for line := range bytes.Lines(content) {
		h.lines = append(h.lines, strings.TrimRight(string(line), "\r\n"))
	}
	if len(h.lines) <= maxHistory {
		return h, nil
	}
	h.lines = h.lines[len(h.lines)-maxHistory:]
	return h, h.rewrite()
}

// rewrite replaces the file in one step.
func (h *History) rewrite() error {
	if err := atomicfile.Write(h.path, []byte(strings.Join(h.lines, "\n")+"\n")); err != nil {
		return fmt.Errorf("cannot shorten the history: %w", err)
	}
	return nil
}

// Add adds a line, unless it repeats the one before, begins with a space, or is empty or the line that leaves.
func (h *History) Add(line string) {
	if line == "" || line == leaveLine || line[0] == ' ' || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	if h.lines = append(h.lines, line); len(h.lines) > maxHistory {
		h.lines = slices.Delete(h.lines, 0, 1)
	}
	_ = h.store(line) // the line was typed; only the next session misses it
}

func (h *History) store(line string) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// Len returns the number of lines.
func (h *History) Len() int { return len(h.lines) }

// At returns a line; 0 is the newest.
func (h *History) At(i int) string { return h.lines[len(h.lines)-1-i] }
