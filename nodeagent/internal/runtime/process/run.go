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
	"github.com/orreryhq/orrery/nodeagent/internal/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// run is one process tree. exit is written before exited is closed and not after.
type run struct {
	instance string
	owner    string
	runDir   string
	tmpDir   string
	id       runtime.Identity
	group    *cgroup.Group // nil without control groups
	limiter  *cgroup.Limiter
	trash    *trash
	census   *census
	// session is the wrapper's session, 0 when the wrapper was found gone: its number
	// may lead a stranger's session by now.
	session int
	// signal ended the wrapper itself; 0 when none did or it was not our child. Set before finish.
	signal syscall.Signal
	// clearing holds a value while somebody kills the tree: who comes second would find the
	// marks of the next run.
	clearing chan struct{}
	// cleared is set once the group was emptied and removed: nothing is left to look for.
	cleared bool
	// killed is closed when we ended the run ourselves: then a missing exit code is no riddle.
	killed  chan struct{}
	killing sync.Once

	// shell and server are pidfds of the two; nil when the run was found ended, server
	// also when its pid is not known.
	shell, server *os.File
	waiting       sync.WaitGroup

	// terminal keeps the run's session, nil when it has none. tty is its terminal; nil
	// when that cannot be watched. hungUp is set when we ended the run for its loss.
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

// watch waits for the end of a living run; pidfd is its wrapper's.
func (p *run) watch(pidfd int) {
	p.session = p.id.Shell.PID
	_ = unix.SetNonblock(pidfd, true)
	p.shell = os.NewFile(uintptr(pidfd), "pidfd")
	if fd, ok, _ := Hold(p.id.Server); ok { // without, only a wrapper that was stopped goes unnoticed
		p.server = os.NewFile(uintptr(fd), "pidfd")
		p.waiting.Go(p.prod)
	}
	if p.terminal != nil {
		p.attend()
	}
	go p.await()
}

// prod has the wrapper tell of the server's end even if somebody stopped it, as a
// SIGSTOP to the whole group does.
func (p *run) prod() {
	AwaitEnd(p.server)
	_ = SendSignal(p.shell, unix.SIGCONT)
}

// await parks until the wrapper ends, reaps it if it is ours, and finishes.
func (p *run) await() {
	AwaitEnd(p.shell)
	p.signal = reap(p.id.Shell.PID)
	_ = p.shell.Close()
	if p.tty != nil { // or its session would wait for us
		_ = p.tty.Close()
	}
	p.finish()
}

// reap collects the wrapper's zombie and tells the signal that ended it. For a
// process that is not our child somebody else does, and it tells 0.
func reap(pid int) syscall.Signal {
	var ws unix.WaitStatus
	if got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil); err != nil || got != pid || !ws.Signaled() {
		return 0
	}
	return ws.Signal()
}

// finish runs once, after the wrapper's end: what is left of the tree goes
// first, then the exit is told.
func (p *run) finish() {
	defer trace.StartRegion(context.Background(), "clear away").End()
	oom, limit := p.limiter.Killed(p.instance)    // as long as there is the group
	for p.killTree(context.Background()) != nil { // a tree that cannot be killed now is not gone
		<-time.After(lookAgain)
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

// releaseTimeout bounds the wait for the kernel to let go of a run that has gone.
const releaseTimeout = 2 * time.Second

// release removes what was made for the run alone.
func (p *run) release() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	p.limiter.Release(ctx, p.instance)
	_ = clearTmp(p.tmpDir) // else the next run does it, or the end of the instance
}

// readExit makes sense of what the wrapper left.
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

// maxLine is the most a FIFO takes in one piece, so that a line arrives whole or not at all.
const maxLine = 4096

func (p *run) WriteLine(line string) error {
	if p.terminal != nil {
		return p.typeLine(line)
	}
	return WriteInput(p.runDir, line)
}

func checkLength(line string) error {
	if len(line)+1 > maxLine {
		return errs.New(errs.Invalid, "a console line may have %d bytes at most", maxLine-1)
	}
	return nil
}

// MakeInput makes the FIFO that is the input of a run in the run's own directory, in
// place of an earlier one, and opens it both ways: who inherits it never sees its end.
func MakeInput(runDir string) (*os.File, error) {
	path := filepath.Join(runDir, "stdin")
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0) // blocking: it is for others
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// WriteInput writes a line into the FIFO that is the input of a run. Errors as of
// runtime.Process's WriteLine.
func WriteInput(runDir, line string) error {
	if err := checkLength(line); err != nil {
		return err
	}
	fd, err := unix.Open(filepath.Join(runDir, "stdin"), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return errs.New(errs.Conflict, "the server has ended and reads no input")
	}
	if err != nil {
		return errs.As(errs.Unavailable, "process.WriteLine", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(line+"\n"))
	if errors.Is(err, unix.EAGAIN) {
		return errs.New(errs.Conflict, "the server does not read its console: its input is full")
	}
	return errs.As(errs.Unavailable, "process.WriteLine", err)
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
	if id.PID == 0 { // it was not noted yet when the start was called off
		var err error
		if id, err = childOf(p.id.Shell.PID, filepath.Join(p.runDir, "pid")); err != nil {
			return err
		}
	}
	pidfd, ok, err := Hold(id)
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

// killTree kills everything of the instance and returns when nothing is left. Of a
// run that has ended nothing is: what carries its marks by now is the next one.
func (p *run) killTree(ctx context.Context) error {
	select {
	case p.clearing <- struct{}{}:
	case <-ctx.Done():
		return errs.Wrap("process.killTree", ctx.Err())
	}
	defer func() { <-p.clearing }()
	select {
	case <-p.exited:
		return nil
	default:
	}
	if p.cleared {
		return nil
	}
	var err error
	if p.group.Exists() {
		err = p.group.Kill(ctx)
	}
	if err == nil { // what has left the group, or was never in one, is known by its marks
		err = p.census.killMarked(ctx, p.owner, p.instance, p.session, p.id.Shell.Start)
	}
	p.cleared = err == nil
	return err
}
