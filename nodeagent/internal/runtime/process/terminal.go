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
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
)

// Terminal runs commands in sessions of a terminal multiplexer. Only input and output differ from
// runs without a terminal.
type Terminal interface {
	// Open creates the instance's session, which logs all output from the first byte on. The
	// program in it waits for what to execute.
	Open(ctx context.Context, s runtime.Spec) (*pane.Pane, error)
	// Type types a line unchanged, and Enter.
	Type(ctx context.Context, instance, line string) error
	// Drain waits until the session of an ended run is gone and all its output is in the log, or
	// until ctx ends.
	Drain(ctx context.Context, instance, runDir string)
	// Close ends the session of an ended run, or gives up when ctx ends.
	Close(ctx context.Context, instance string)
	// Attach returns the shell command that opens the session.
	Attach(instance string) string
}

// SessionConfig configures a runtime whose commands run in sessions of a terminal multiplexer.
type SessionConfig struct {
	// Process is the configuration shared with plain processes; its Terminal is ignored.
	Process Config
	// Dir is the runtime's own directory, which the runtime creates. It holds sockets, so its path
	// must be short.
	Dir string
	// Pane is the command that calls pane.Main with the arguments added to it.
	Pane []string
}

const (
	// hangupGrace is how long a server may take to end after its terminal was closed.
	hangupGrace = 5 * time.Second
	// drainTimeout limits the wait for the output of an ended run.
	drainTimeout = 10 * time.Second
	// killedDrain is the limit for a killed run, closeTimeout that for closing a session that
	// still exists then, so that a stuck multiplexer does not block.
	killedDrain  = 500 * time.Millisecond
	closeTimeout = 300 * time.Millisecond
	// typeTimeout limits the typing of a line, readTimeout the wait until the server has read
	// earlier input.
	typeTimeout = 5 * time.Second
	readTimeout = time.Second
)

// launchInTerminal starts the wrapper in a session.
func (r *Runtime) launchInTerminal(ctx context.Context, s runtime.Spec, w wrapperStart, files runFiles) (pidfd, pid int, err error) {
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
			group.Discard() // an empty group would count as the whole instance
			r.warnUngrouped(refused)
		}
	}
	if refused := cgroup.JoinProcess(head.PID(), w.joins); refused != nil {
		r.warnUnlimited(refused)
	}
	program := pane.Program{Dir: s.Dir, Path: w.sh, Argv: w.argv, Env: w.env, Lock: s.Lock, Confined: w.confined, FirstFd: pidFd, Files: []*os.File{files.pid, files.noted, files.exit}}
	if err := head.Run(program); err != nil {
		_ = unix.Close(pidfd)
		return 0, 0, err
	}
	return pidfd, head.PID(), nil
}

// watchTerminal watches the terminal of a run, unless it cannot be opened. p.tty stays open as long
// as the wrapper lives.
func (p *run) watchTerminal() {
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

// awaitHangup waits until a terminal is closed; it returns false if the file was closed first.
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

// hangUp ends a run whose terminal was closed. The server gets hangupGrace to end.
func (p *run) hangUp() {
	_ = p.Signal(syscall.SIGTERM)
	for end := time.Now().Add(hangupGrace); time.Now().Before(end); {
		if ended(p.shell, retryPause) {
			return // it has written its exit
		}
	}
	p.hungUp.Store(true)
	for p.killTree(context.Background()) != nil {
		<-time.After(retryPause)
	}
}

// ended waits for the end of a pidfd's process, at most for within. The file is closed soon
// after the end.
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

// typeLine types into the session. A terminal drops input beyond its buffer, so it waits for the
// server to read earlier input.
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

// unread returns how many typed bytes the server has not read.
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

// drain waits for the last output of an ended run, and closes a session that takes too long.
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
