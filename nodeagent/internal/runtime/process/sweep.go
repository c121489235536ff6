package process

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// sweepAgain is the longest wait for the ends of processes that were killed before
// their instance's are looked for again: they may have started others meanwhile.
const sweepAgain = 200 * time.Millisecond

// killMarked kills every process of an instance's run, see marked, and returns when none
// is left. Unavailable when a process cannot be looked at.
func (c *census) killMarked(ctx context.Context, owner, instance string, session int, since uint64) error {
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
			strike(id, dying)
		}
		if len(left)+len(dying) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return errs.Wrap("process.killMarked", ctx.Err())
		}
		awaitEnds(dying)
		if err := bury(dying); err != nil {
			return err
		}
	}
}

// strike kills one process and notes it as dying. One that dies loses its mark before
// its files and ports, so its end is waited for.
func strike(id runtime.ProcessID, dying map[runtime.ProcessID]int) {
	pidfd, ok := dying[id]
	if !ok {
		var err error
		pidfd, ok, err = Hold(id)
		switch {
		case err != nil: // more of them than descriptors: it was seen to be one a moment ago
			_ = unix.Kill(id.PID, unix.SIGKILL)
			return
		case !ok:
			return
		}
		dying[id] = pidfd
	}
	_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // whether it did any good is looked at
}

// awaitEnds waits until all have ended, for a while at most.
func awaitEnds(dying map[runtime.ProcessID]int) {
	if len(dying) == 0 { // there are some, but none to wait for
		<-time.After(time.Millisecond)
		return
	}
	end := time.Now().Add(sweepAgain)
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
			<-time.After(min(left, lookAgain))
			return
		}
		waiting = 0
		for i := range fds {
			if fds[i].Revents != 0 {
				fds[i].Fd = -1 // has ended: poll leaves it out
			}
			if fds[i].Fd >= 0 {
				waiting++
			}
		}
	}
}

// bury forgets those that have ended.
func bury(dying map[runtime.ProcessID]int) error {
	for id, pidfd := range dying {
		alive, err := lives(id)
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
