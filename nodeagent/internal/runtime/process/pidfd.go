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

// retryPause is the pause before a retry when the host is out of descriptors or memory.
const retryPause = 100 * time.Millisecond

// OpenPidfd opens a non-blocking pidfd of a process; the caller closes it. ok is false if the process
// has ended. It returns the errors of Lives.
func OpenPidfd(id runtime.ProcessID) (pidfd int, ok bool, err error) {
	if id.PID <= 0 {
		return -1, false, nil
	}
	// Open first, then compare: this notices a pid that was reused in between.
	pidfd, opening := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(opening, unix.ESRCH) {
		return -1, false, nil
	}
	ok, err = Lives(id)
	if ok && opening != nil {
		err = errs.WrapAs(errs.Unavailable, "process.OpenPidfd", opening)
	}
	switch {
	case ok && err == nil:
		return pidfd, true, nil
	case opening == nil:
		_ = unix.Close(pidfd)
	}
	return -1, false, err
}

// AwaitEnd waits until the process of a non-blocking pidfd has ended, or the file is closed.
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
		<-time.After(retryPause) // an error says nothing about the process
	}
}

// SendSignal signals the process of a pidfd. It is no error if the process has ended or the file is
// closed.
func SendSignal(pidfd *os.File, sig syscall.Signal) error {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "process.SendSignal", err)
	}
	var sent error
	_ = conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }) // fails only for a closed file
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return errs.WrapAs(errs.Unavailable, "process.SendSignal", sent)
}

// readable reports whether a pidfd's process has ended.
func readable(fd int) (bool, error) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}
