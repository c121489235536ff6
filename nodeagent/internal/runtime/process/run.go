package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
)

// run is one process tree. exit is written only before exited is closed.
type run struct {
	instance string
	owner    string
	runDir   string
	tmpDir   string
	id       runtime.Identity
	group    *cgroup.Group // nil without control groups
	limiter  *cgroup.Limiter
	trash    *trash
	scanner  *scanner
	// session is the wrapper's session; 0 if the wrapper had ended, because its number may be
	// reused.
	session int
	// signal killed the wrapper itself; 0 if none did or it is not our child. Set before finish.
	signal syscall.Signal
	// killLock holds a value while a goroutine kills the tree. A later caller must not find
	// processes of the next run.
	killLock chan struct{}
	// treeGone is set when all processes have ended.
	treeGone bool
	// killed is closed when the agent kills the run, which explains a missing exit code.
	killed  chan struct{}
	killing sync.Once

	// shell and server are pidfds; nil if the run had ended when it was adopted. server is also
	// nil if its pid is unknown.
	shell, server *os.File
	waiting       sync.WaitGroup

	// terminal has the run's session; may be nil. tty is its terminal device; nil if it cannot be
	// watched. hungUp is set when the agent killed the run because its terminal was closed.
	terminal Terminal
	tty      *os.File
	hungUp   atomic.Bool
	typing   sync.Mutex // held while a line is typed

	exited chan struct{}
	exit   runtime.Exit
}

var _ runtime.Process = (*run)(nil)

func (p *run) Identity() runtime.Identity { return p.id }
func (p *run) Exited() <-chan struct{}    { return p.exited }
func (p *run) Exit() runtime.Exit         { return p.exit }

func (p *run) Attach() string {
	if p.terminal == nil {
		return ""
	}
	return p.terminal.Attach(p.instance)
}

func (p *run) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return p.session != 0
	}
}

// watch waits for the end of a living run. pidfd is its wrapper's.
func (p *run) watch(pidfd int) {
	p.session = p.id.Shell.PID
	_ = unix.SetNonblock(pidfd, true)
	p.shell = os.NewFile(uintptr(pidfd), "pidfd")
	if fd, ok, _ := OpenPidfd(p.id.Server); ok { // without it, only the end under a stopped wrapper goes unnoticed
		p.server = os.NewFile(uintptr(fd), "pidfd")
		p.waiting.Go(p.resumeOnEnd)
	}
	if p.terminal != nil {
		p.watchTerminal()
	}
	go p.await()
}

// resumeOnEnd continues a stopped wrapper after the server's end, so that it can exit. A SIGSTOP to
// the whole group stops it.
func (p *run) resumeOnEnd() {
	AwaitEnd(p.server)
	_ = SendSignal(p.shell, unix.SIGCONT)
}

// await waits until the wrapper ends, reaps it if it is our child, and calls finish.
func (p *run) await() {
	AwaitEnd(p.shell)
	p.signal = reap(p.id.Shell.PID)
	_ = p.shell.Close()
	if p.tty != nil { // an open terminal would keep its session
		_ = p.tty.Close()
	}
	p.finish()
}

// reap collects the wrapper's zombie and returns the signal that killed it; 0 if it is not our
// child.
func reap(pid int) syscall.Signal {
	var ws unix.WaitStatus
	if got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil); err != nil || got != pid || !ws.Signaled() {
		return 0
	}
	return ws.Signal()
}

// finish runs once, after the wrapper's end. It kills the remaining processes, and then closes
// exited.
func (p *run) finish() {
	defer trace.StartRegion(context.Background(), "clear away").End()
	oom, limit := p.limiter.Killed(p.instance)    // before the group is removed
	for p.killTree(context.Background()) != nil { // retry until it succeeds
		<-time.After(retryPause)
	}
	p.release()
	p.drain()
	p.exit = p.readExit()
	if oom && p.exit.Signal == signalNames[syscall.SIGKILL] {
		p.exit.OOM, p.exit.LimitMiB = true, limit
	}
	if p.server != nil {
		_ = p.server.Close()
	}
	p.waiting.Wait()
	close(p.exited)
	p.trash.empty(p.tmpDir)
}

// releaseTimeout limits the wait for the kernel to release the groups of an ended run.
const releaseTimeout = 2 * time.Second

// release removes the resources of the run.
func (p *run) release() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	p.limiter.Release(ctx, p.instance)
	_ = clearTmp(p.tmpDir) // else the next run or the instance's end removes it
}

// readExit interprets what the wrapper has written.
func (p *run) readExit() runtime.Exit {
	path := filepath.Join(p.runDir, "exit")
	code, input, err := readLines(path)
	switch {
	case err == nil:
		e := runtime.Exit{Code: code, Known: true, Hangup: p.terminal != nil && input != "tty", At: time.Now()}
		if fi, err := os.Stat(path); err == nil {
			e.At = fi.ModTime()
		}
		if code > 128 {
			e.Signal = signalNames[syscall.Signal(code-128)]
		}
		return e
	case p.hungUp.Load():
		return runtime.Exit{Code: 128 + int(syscall.SIGKILL), Signal: "KILL", Known: true, Hangup: true, At: time.Now()}
	case p.signal != 0:
		return runtime.Exit{Code: 128 + int(p.signal), Signal: signalNames[p.signal], Known: true, At: time.Now()}
	case p.wasKilled():
		return runtime.Exit{Code: 128 + int(syscall.SIGKILL), Signal: "KILL", Known: true, At: time.Now()}
	}
	return runtime.Exit{At: time.Now()}
}

// maxLine is the maximum number of bytes that a FIFO accepts atomically.
const maxLine = 4096

func (p *run) WriteLine(line string) error {
	if p.terminal != nil {
		return p.typeLine(line)
	}
	return WriteInput(p.runDir, line)
}

func checkLength(line string) error {
	if len(line)+1 > maxLine {
		return errs.New(errs.Invalid, "a console line may have at most %d bytes", maxLine-1)
	}
	return nil
}

// MakeInput creates the input FIFO in the run directory, replaces an earlier one, and opens it for
// reading and writing, so that a process that inherits it never sees EOF.
func MakeInput(runDir string) (*os.File, error) {
	path := filepath.Join(runDir, "stdin")
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0) // blocking, because other processes inherit it
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// WriteInput writes a line to the input FIFO of a run. It returns the errors of
// runtime.Process.WriteLine.
func WriteInput(runDir, line string) error {
	if err := checkLength(line); err != nil {
		return err
	}
	fd, err := unix.Open(filepath.Join(runDir, "stdin"), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return errs.New(errs.Conflict, "the server has ended and reads no input")
	}
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "process.WriteLine", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(line+"\n"))
	if errors.Is(err, unix.EAGAIN) {
		return errs.New(errs.Conflict, "the server does not read its console: its input is full")
	}
	return errs.WrapAs(errs.Unavailable, "process.WriteLine", err)
}

func (p *run) Signal(sig syscall.Signal) error {
	select {
	case <-p.exited:
		return nil
	default:
	}
	if p.server != nil {
		return SendSignal(p.server, sig)
	}
	id := p.id.Server
	if id.PID == 0 { // the start was canceled before the pid was written
		var err error
		if id, err = childOf(p.id.Shell.PID, filepath.Join(p.runDir, "pid")); err != nil {
			return err
		}
	}
	pidfd, ok, err := OpenPidfd(id)
	if !ok {
		return err
	}
	server := os.NewFile(uintptr(pidfd), "pidfd")
	defer server.Close()
	return SendSignal(server, sig)
}

func (p *run) Kill(ctx context.Context) error {
	p.killing.Do(func() { close(p.killed) })
	if err := p.killTree(ctx); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return errs.Wrap("process.Kill", ctx.Err())
	}
}

func (p *run) wasKilled() bool {
	select {
	case <-p.killed:
		return true
	default:
		return false
	}
}

// killTree kills all processes of the instance and returns when they have ended. It does nothing for
// an ended run, because processes with its marks belong to the next run.
func (p *run) killTree(ctx context.Context) error {
	select {
	case p.killLock <- struct{}{}:
	case <-ctx.Done():
		return errs.Wrap("process.killTree", ctx.Err())
	}
	defer func() { <-p.killLock }()
	select {
	case <-p.exited:
		return nil
	default:
	}
	if p.treeGone {
		return nil
	}
	var err error
	if p.group.Exists() {
		err = p.group.Kill(ctx)
	}
	if err == nil { // processes that left the group, or were never in it, are found by their marks
		err = p.scanner.killMarked(ctx, p.owner, p.instance, p.session, p.id.Shell.Start)
	}
	p.treeGone = err == nil
	return err
}
