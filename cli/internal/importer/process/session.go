package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

var sessionLine = lazyregexp.New(`^\s+(\d+)\.(\S+)\s`)

// session is a session that screen lists.
type session struct {
	pid  int
	name string
}

// sessionsIn returns the sessions in what screen -ls prints. Dead ones are left out.
func sessionsIn(text string) []session {
	var out []session
	for line := range strings.Lines(text) {
		match := sessionLine().FindStringSubmatch(line)
		if match == nil || strings.Contains(line, "(Dead") {
			continue
		}
		if pid, err := strconv.Atoi(match[1]); err == nil {
			out = append(out, session{pid, match[2]})
		}
	}
	return out
}

// Session returns the process of a session, which is named "name" or "pid.name".
func Session(wanted string) (pid int, name string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, "screen", "-ls").CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) { // screen -ls of some versions ends with 1
		return 0, "", fmt.Errorf("list the sessions of screen: %w", err)
	}
	all := sessionsIn(string(text))
	var found []session
	var names []string
	for _, s := range all {
		full := fmt.Sprintf("%d.%s", s.pid, s.name)
		names = append(names, full)
		if wanted == s.name || wanted == full {
			found = append(found, s)
		}
	}
	switch {
	case len(all) == 0:
		return 0, "", fmt.Errorf("this user has no session of screen: run this as the user of the session (%s)", strings.TrimSpace(string(text)))
	case len(found) == 0:
		return 0, "", fmt.Errorf("screen has no session %q, only %s", wanted, strings.Join(names, ", "))
	case len(found) > 1:
		return 0, "", fmt.Errorf("screen has %d sessions %q: name one of %s", len(found), wanted, strings.Join(names, ", "))
	}
	return found[0].pid, found[0].name, nil
}
