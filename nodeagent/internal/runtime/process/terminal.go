package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
)

// Terminal keeps sessions that commands run in: a terminal multiplexer. All but where
// input comes from and output goes to is the same as without.
type Terminal interface {
	// Open makes the instance's session, all of whose output goes to the log from its
	// first byte on. What runs in it waits to be told what to become.
	Open(ctx context.Context, s runtime.Spec) (Pane, error)
	// Type types a line as it is, and Enter.
	Type(ctx context.Context, instance, line string) error
	// Drain returns when the session of a run that has ended is gone and all of its
	// output is in the log, or when ctx ends.
	Drain(ctx context.Context, instance, runDir string)
	// Close ends the session of a run that has ended, or gives up when ctx ends.
	Close(ctx context.Context, instance string)
	// Attach is the shell command that shows an operator the session.
	Attach(instance string) string
}

// Pane is a process at the head of a terminal of its own that waits.
type Pane interface {
	PID() int
	// Run has it turn into a program.
	Run(program pane.Program) error
	// Close ends it if it still waits.
	Close()
}

const (
	// hangupGrace is what a server may take to end when its terminal has gone.
	hangupGrace = 5 * time.Second
	// drainTimeout bounds the wait for the output of a run that has ended.
	drainTimeout = 10 * time.Second
	// killedDrain bounds it for one that we have killed, closeTimeout the closing of a
	// session that was not gone by then: a multiplexer that is stuck holds nobody up.
	killedDrain  = 500 * time.Millisecond
	closeTimeout = 300 * time.Millisecond
	// typeTimeout bounds the typing of a line, readTimeout how long a server may take
	// to read what was typed before.
	typeTimeout = 5 * time.Second
	readTimeout = time.Second
)

// launchInside has the wrapper run inside a session.
func (r *Runtime) launchInside(ctx context.Context, s runtime.Spec, w wrapped) (pidfd, pid int, err error) {
	head, err := r.terminal.Open(ctx, s)
	if err != nil {
		return 0, 0, err
	}
	defer head.Close()
	pidfd, err = unix.PidfdOpen(head.PID(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return 0, 0, err
	}
	if group := r.tree.Group(s.InstanceID); group != nil {
		if refused := group.Join(head.PID()); refused != nil {
			group.Discard() // an empty group would be taken for the whole instance
			r.tellUngrouped(refused)
		}
	}
	if err := head.Run(pane.Program{Dir: s.Dir, Path: w.sh, Argv: w.argv, Env: w.env, Lock: s.Lock, Environ: w.environ}); err != nil {
		_ = unix.Close(pidfd)
		return 0, 0, err
	}
	return pidfd, head.PID(), nil
}

// attend watches the terminal of a run: p.tty is open as long as the wrapper lives.
// One that cannot be opened for another reason than that it has gone is not watched.
func (p *run) attend() {
	path := filepath.Join("/proc", strconv.Itoa(p.id.Shell.PID), "fd", "0")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		p.tty = os.NewFile(uintptr(fd), "terminal")
		p.waiting.Go(func() {
			if awaitHangup(p.tty) {
				p.hangUp()
			}
		})
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		p.waiting.Go(p.hangUp)
	}
}

// awaitHangup parks until a terminal has gone; it is false when the file was closed first.
func awaitHangup(tty *os.File) bool {
	conn, err := tty.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, _ := unix.Poll(fds, 0)
		gone = n > 0 && fds[0].Revents&unix.POLLHUP != 0
		return gone
	})
	return gone && err == nil
}

// hangUp ends a run whose terminal has gone: the server gets a little time.
func (p *run) hangUp() {
	_ = p.Signal(syscall.SIGTERM)
	for end := time.Now().Add(hangupGrace); time.Now().Before(end); {
		if ended(p.shell, lookAgain) {
			return // and has said how
		}
	}
	p.hungUp.Store(true)
	for p.killTree(context.Background()) != nil {
		<-time.After(lookAgain)
	}
}

// ended waits for the end of a pidfd's process, for a while at most. The file is
// closed soon after it.
func ended(pidfd *os.File, within time.Duration) (ended bool) {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return true
	}
	err = conn.Control(func(fd uintptr) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(within/time.Millisecond))
		ended = n > 0
	})
	return ended || err != nil
}

// typeLine types into the session. A terminal takes so much ahead of who reads it:
// more would be dropped.
func (p *run) typeLine(line string) error {
	if err := checkLength(line); err != nil {
		return err
	}
	p.typing.Lock()
	defer p.typing.Unlock()
	if !p.Running() {
		return errs.New(errs.Conflict, "the server has ended and reads no input")
	}
	for end := time.Now().Add(readTimeout); p.unread()+len(line)+1 > maxLine; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			return errs.New(errs.Conflict, "the server does not read its console: its input is full")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), typeTimeout)
	defer cancel()
	err := p.terminal.Type(ctx, p.instance, line)
	if err != nil && !p.Running() {
		return errs.New(errs.Conflict, "the server has ended and reads no input")
	}
	return err
}

// unread is how much was typed that the server has not read yet, in bytes.
func (p *run) unread() (n int) {
	if p.tty == nil {
		return 0
	}
	conn, err := p.tty.SyscallConn()
	if err != nil {
		return 0
	}
	_ = conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// drain waits for the last output of a run that has ended, and closes a session that
// keeps it waiting.
func (p *run) drain() {
	if p.terminal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.terminal.Drain(ctx, p.instance, p.runDir)
	}()
	select {
	case <-drained:
	case <-p.killed:
		hurry := time.AfterFunc(killedDrain, cancel)
		defer hurry.Stop()
		<-drained
	}
	if ctx.Err() != nil {
		within, done := context.WithTimeout(context.Background(), closeTimeout)
		defer done()
		p.terminal.Close(within, p.instance)
	}
}
