package local

import (
	"os"
	"os/exec"
	"syscall"
)

// detach keeps Ctrl-C away from a program.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// terminate ends a process. Windows has no signal that asks it to.
func terminate(p *os.Process) error { return p.Kill() }
