package process

import (
	"os"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Identify is a process id with its start time; 0 as start when nothing has that id.
func Identify(pid int) runtime.ProcessID { return identify(pid) }

// Lives reports whether a remembered process still runs and is no zombie. One that
// has its id by now is told apart by the start time.
func Lives(id runtime.ProcessID) bool { return lives(id) }

// AwaitEnd parks until the process of a non-blocking pidfd has ended, or the file is closed.
func AwaitEnd(pidfd *os.File) {
	if conn, err := pidfd.SyscallConn(); err == nil {
		_ = conn.Read(func(fd uintptr) bool { return readable(int(fd)) })
	}
}
