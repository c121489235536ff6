package process

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// lookAgain is the pause before something is looked at again that could not be
// seen, since the host is out of descriptors or memory.
const lookAgain = 100 * time.Millisecond

// Lives reports whether a remembered process still runs and is no zombie. One that
// has its id by now is told apart by the start time. Unavailable when the host does
// not let it be told: then it is not known to have gone.
func Lives(id runtime.ProcessID) (bool, error) { return lives(id) }

// Identify is a process id with its start time; 0 as start when nothing has that
// id. Errors as of Lives.
func Identify(pid int) (runtime.ProcessID, error) { return identify(pid) }

// Hold opens a remembered process: the descriptor stays its, whoever gets its id.
// It is not blocking, and the caller closes it. ok is false when the process has
// gone. Errors as of Lives.
func Hold(id runtime.ProcessID) (pidfd int, ok bool, err error) {
	if id.PID <= 0 {
		return -1, false, nil
	}
	// Open first, compare then: a pid that is recycled in between is noticed.
	pidfd, opening := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(opening, unix.ESRCH) {
		return -1, false, nil
	}
	ok, err = lives(id)
	if ok && opening != nil {
		err = errs.As(errs.Unavailable, "process.Hold", opening)
	}
	switch {
	case ok && err == nil:
		return pidfd, true, nil
	case opening == nil:
		_ = unix.Close(pidfd)
	}
	return -1, false, err
}

// AwaitEnd parks until the process of a non-blocking pidfd has ended, or the file is closed.
func AwaitEnd(pidfd *os.File) {
	for {
		ended := false
		if conn, err := pidfd.SyscallConn(); err == nil {
			_ = conn.Read(func(fd uintptr) bool {
				var err error
				ended, err = readable(int(fd))
				return ended || err != nil
			})
		}
		if _, err := pidfd.Read(nil); ended || errors.Is(err, os.ErrClosed) {
			return
		}
		<-time.After(lookAgain) // the host could not tell, which says nothing about the process
	}
}

// SendSignal signals the process of a pidfd. One that has ended, or was let go of
// since it has, gets none, which is no error.
func SendSignal(pidfd *os.File, sig syscall.Signal) error {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return errs.As(errs.Unavailable, "process.SendSignal", err)
	}
	var sent error
	_ = conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }) // fails for a closed one only
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return errs.As(errs.Unavailable, "process.SendSignal", sent)
}

// readable reports whether a pidfd's process has ended.
func readable(fd int) (bool, error) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}
