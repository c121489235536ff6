//go:build unix

package local

import (
	"os"
	"os/exec"
	"syscall"
)

// detach keeps Ctrl-C and the end of the terminal away from a program.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// terminate asks a process to end.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
