package nodeagent

import (
	"io"

	"github.com/orreryhq/orrery/nodeagent/internal/guard"
)

// GuardCommand is the hidden first argument that makes a program a guard. A program
// that runs an agent answers it with Guard.
const GuardCommand = "guard"

// OwnGuard is the Config.Guard of a program that answers GuardCommand: the very file
// that runs, although it was replaced by another version meanwhile.
func OwnGuard() []string { return []string{"/proc/self/exe", GuardCommand} }

// Guard is the program of a guard, which stands beside an exclusive instance and
// ends it when its node's deadline passes although no agent runs. It
// returns the exit code.
func Guard(stdin io.Reader, stdout, stderr io.Writer) int { return guard.Main(stdin, stdout, stderr) }
