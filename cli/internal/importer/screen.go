package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/cmdline"
	"github.com/orreryhq/orrery/cli/internal/importer/process"
	"github.com/orreryhq/orrery/cli/internal/importer/secret"
)

// Screen imports the server that runs in a session of screen. It must run as the user of the session
// or as root, and while the server runs.
func Screen(session string) (*Result, error) {
	pid, name, err := process.Session(session)
	if err != nil {
		return nil, err
	}
	all, err := process.All()
	if err != nil {
		return nil, err
	}
	server, via, ok := process.ServerBelow(all, pid)
	if !ok {
		return nil, fmt.Errorf("session %q runs nothing: start the server in it, and import it while it runs", name)
	}
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(server.PID), "cwd"))
	if err != nil {
		return nil, fmt.Errorf("read the directory of process %d in session %q: %w; run this as the user of the session or as root", server.PID, name, err)
	}
	r := newReport(nil)
	g := r.group("session "+name, name)
	open, err := process.Listening(server.PID)
	if err != nil {
		r.note(g.object, "ports", nil, "The ports that it listens on cannot be read: %v. Run this as the user of the session or as root.", err)
	}
	r.place(fromProcess{group: g, words: server.Args, dir: dir, ports: open}, cmdline.Quote)
	r.memory(g, strings.Join(server.Args, " "), server.PeakMiB)
	r.stopLine(g, dir)
	g.set("runtime", "screen")
	r.sessionNotes(g, server, via, all[pid])
	return r.finish()
}

// sessionNotes notes what the session has besides the server.
func (r *report) sessionNotes(g *group, server process.Process, via [][]string, windows []process.Process) {
	r.note(g.object, "process", server.PID, "The server runs. Stop it in its session before you move its directory, and do not start it there again.")
	if len(via) > 0 {
		script, _ := secret.Words(via[len(via)-1])
		r.note(g.object, "script", strings.Join(script, " "), "The command of the group is the server itself, not what started it. Orrery restarts a server that ends.")
	}
	if len(windows) > 1 {
		r.note(g.object, "windows", len(windows), "The session has several windows. Only the largest process was imported.")
	}
	if names := environmentOf(server.PID); len(names) > 0 {
		r.note(g.object, "environment", strings.Join(names, " "), "The environment was not copied, because a shell has many variables and some may be secret. Add to env those that the server needs.")
	}
}

// environmentOf returns the names of a process's variables, without those that every shell has.
func environmentOf(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return nil
	}
	usual := regexp.MustCompile(`^(PATH|HOME|LANG|LANGUAGE|LC_.*|TERM|TERMCAP|USER|LOGNAME|SHELL|SHLVL|PWD|OLDPWD|MAIL|_|STY|WINDOW|COLUMNS|LINES|DISPLAY|LS_COLORS|SSH_.*|XDG_.*|DBUS_.*|SUDO_.*|SCREENDIR|HOSTNAME|LESS.*|EDITOR|PS1)$`)
	var out []string
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if name, _, ok := strings.Cut(entry, "="); ok && !usual.MatchString(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
