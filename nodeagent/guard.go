package nodeagent

import (
	"io"

	"github.com/orreryhq/orrery/nodeagent/internal/node/guard"
)

// GuardCommand is the hidden first argument that makes a program a guard. A program
// that runs an agent handles it with Guard.
const GuardCommand = "guard"

// OwnGuard is the Config.Guard of a program that handles GuardCommand. It names the
// running executable even if the file was replaced meanwhile.
func OwnGuard() []string { return []string{"/proc/self/exe", GuardCommand} }

// Guard is the main function of a guard: it ends an exclusive instance when the node's
// deadline passes, even if no agent runs. It returns the exit code.
func Guard(stdin io.Reader, stdout, stderr io.Writer) int { return guard.Main(stdin, stdout, stderr) }
