package process

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// endTimeout limits the wait for killed processes before the instance's processes are searched
// again: they may have started others meanwhile.
const endTimeout = 200 * time.Millisecond

// killMarked kills all processes of an instance's run, see marked, and returns when they have ended.
// It returns Unavailable if it cannot examine a process.
func (c *scanner) killMarked(ctx context.Context, owner, instance string, session int, since uint64) error {
	dying := map[runtime.ProcessID]int{} // their pidfds
	defer func() {
		for _, pidfd := range dying {
			_ = unix.Close(pidfd)
		}
	}()
	for {
		left, err := c.marked(owner, instance, session, since)
		if err != nil {
			return err
		}
		for _, id := range left {
			killAndTrack(id, dying)
		}
		if len(left)+len(dying) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return errs.Wrap("process.killMarked", ctx.Err())
		}
		awaitEnds(dying)
		if err := forgetEnded(dying); err != nil {
			return err
		}
	}
}

// killAndTrack kills one process and records it as dying. A dying process loses its mark before it
// releases files and ports, so its end must be awaited.
func killAndTrack(id runtime.ProcessID, dying map[runtime.ProcessID]int) {
	pidfd, ok := dying[id]
	if !ok {
		var err error
		pidfd, ok, err = OpenPidfd(id)
		switch {
		case err != nil: // out of descriptors; it was identified a moment ago
			_ = unix.Kill(id.PID, unix.SIGKILL)
			return
		case !ok:
			return
		}
		dying[id] = pidfd
	}
	_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // the next search shows whether it worked
}

// awaitEnds waits until all have ended, at most endTimeout.
func awaitEnds(dying map[runtime.ProcessID]int) {
	if len(dying) == 0 { // processes remain, but there are no pidfds to wait for
		<-time.After(time.Millisecond)
		return
	}
	end := time.Now().Add(endTimeout)
	fds := make([]unix.PollFd, 0, len(dying))
	for _, pidfd := range dying {
		fds = append(fds, unix.PollFd{Fd: int32(pidfd), Events: unix.POLLIN})
	}
	for waiting := len(fds); waiting > 0; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		if _, err := unix.Poll(fds, int(left/time.Millisecond)+1); err != nil && !errors.Is(err, unix.EINTR) {
			<-time.After(min(left, retryPause))
			return
		}
		waiting = 0
		for i := range fds {
			if fds[i].Revents != 0 {
				fds[i].Fd = -1 // ended: poll ignores negative descriptors
			}
			if fds[i].Fd >= 0 {
				waiting++
			}
		}
	}
}

// forgetEnded removes the processes that have ended.
func forgetEnded(dying map[runtime.ProcessID]int) error {
	for id, pidfd := range dying {
		alive, err := Lives(id)
		if err != nil {
			return err
		}
		if !alive {
			_ = unix.Close(pidfd)
			delete(dying, id)
		}
	}
	return nil
}
