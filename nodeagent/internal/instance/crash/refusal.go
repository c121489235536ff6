package crash

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Exit codes of a shell that could not run a command.
const (
	CodeNotExecutable = 126
	CodeMissing       = 127
)

// shellError matches a shell's error for a command that it could not run: "sh: 1: nosuch: not
// found", "bash: line 1: ./run: Permission denied".
var shellError = regexp.MustCompile(`: (?:line )?\d+: (?:exec: )?(.+?): (command not found|not found|No such file or directory|Permission denied|Is a directory|cannot execute.*|.*[Ee]xec format error)$`)

// Refused detects from a shell's exit code and last lines that it could not run a command. It
// returns the reason and a message that names the command and says what to do. ok is false
// for every other end, because servers may use these exit codes too.
func Refused(code int, tail []string) (reason fleet.Reason, message string, ok bool) {
	if code != CodeMissing && code != CodeNotExecutable {
		return "", "", false
	}
	for _, l := range slices.Backward(tail) {
		said := shellError.FindStringSubmatch(printable(l))
		if said == nil {
			continue
		}
		if code == CodeMissing {
			return fleet.ReasonCommandMissing, fmt.Sprintf("the command %q does not exist on the node: add it to a template, correct the group's command, or install it there and reset the group's crashes; until then it is not tried again", clip(said[1])), true
		}
		return fleet.ReasonNotExecutable, fmt.Sprintf("the command %q cannot be executed on the node (%s): make it an executable file, or correct the group's command; until then it is not tried again", clip(said[1]), said[2]), true
	}
	return "", "", false
}
