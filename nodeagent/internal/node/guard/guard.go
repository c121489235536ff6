package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// startTimeout bounds the start of a guard on a very slow machine.
const startTimeout = 10 * time.Second

// Spec configures a guard.
type Spec struct {
	// Instance and Run identify the guarded run.
	Instance string `json:"instance"`
	Run      int    `json:"run"`
	// RunDir is the run's directory, and Deadline the file with the node's deadline.
	RunDir   string `json:"runDir"`
	Deadline string `json:"deadline"`
	// Tree is the directory of the agent's control groups; empty without them.
	Tree string `json:"tree,omitempty"`
	// Owner names the control groups; see process.Config.
	Owner string `json:"owner"`
}

// Launcher starts guards.
type Launcher struct {
	// Command is the program that calls Main, with its arguments. If it is empty, guards are
	// unavailable.
	Command []string
	// Deadline, Tree and Owner are passed to every guard; see Spec.
	Deadline, Tree, Owner string
}

// Guard is the agent's handle of a guard.
type Guard struct {
	holder holder
	stdin  *os.File // nil once the identity was sent
	pidfd  *os.File
	exited chan struct{}
}

// Start starts a guard for a run that is about to start, and ends the guard of the previous
// run. Unavailable if there is no guard program, or the guard is not ready before ctx ends.
func (p *Launcher) Start(ctx context.Context, instance, runDir string, run int) (*Guard, error) {
	if len(p.Command) == 0 {
		return nil, errs.New(errs.Unavailable, "this agent has no guard program, which exclusive instances need")
	}
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "guard.Start", err)
	}
	old, err := p.Find(runDir)
	if err != nil {
		return nil, err
	}
	if old != nil {
		old.End()
	}
	spec, err := json.Marshal(Spec{Instance: instance, Run: run, RunDir: runDir, Deadline: p.Deadline, Tree: p.Tree, Owner: p.Owner})
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "guard.Start", err)
	}
	g, output, err := p.spawn(runDir, instance, run)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "guard.Start", err)
	}
	defer output.Close()
	if err := g.await(ctx, output, append(spec, '\n')); err != nil {
		g.End()
		return nil, errs.WrapAs(errs.Unavailable, "guard.Start", errors.Join(err, logged(runDir)))
	}
	return g, nil
}

// spawn starts the process in a session of its own and without the agent's environment.
func (p *Launcher) spawn(runDir, instance string, run int) (g *Guard, output *os.File, err error) {
	var ends []*os.File
	defer func() {
		for _, f := range ends {
			_ = f.Close()
		}
	}()
	log, err := os.OpenFile(logPath(runDir), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, log)
	stdin, stdinWriter, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, stdin)
	output, stdout, err := os.Pipe()
	if err != nil {
		_ = stdinWriter.Close()
		return nil, nil, err
	}
	ends = append(ends, stdout)
	var pidfd int
	child, err := os.StartProcess(p.Command[0], append(slices.Clone(p.Command), instance), &os.ProcAttr{
		Dir: "/", Files: []*os.File{stdin, stdout, log}, Env: environment(),
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err != nil {
		_, _ = stdinWriter.Close(), output.Close()
		return nil, nil, err
	}
	g = follow(holder{runtime.ProcessID{PID: child.Pid}, run}, pidfd)
	g.stdin = stdinWriter
	_ = child.Release() // follow waits with the pidfd
	return g, output, nil
}

// environment keeps a guard small. The runtime package checksPerMargin for a shell although a guard
// starts none.
func environment() []string {
	return []string{"GOMAXPROCS=1", "GOGC=20", "GOTRACEBACK=single", "PATH=" + os.Getenv("PATH")}
}

// await sends the guard its spec and waits until it is ready.
func (g *Guard) await(ctx context.Context, output *os.File, spec []byte) error {
	_, sendErr := g.stdin.Write(spec) // even after an error the guard's log may explain it
	end := time.Now().Add(startTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	_ = output.SetReadDeadline(end)
	defer context.AfterFunc(ctx, func() { _ = output.SetReadDeadline(time.Now()) })()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err == nil && line != ready {
		err = errs.New(errs.Internal, "it printed %q", line)
	}
	return errors.Join(err, sendErr)
}

// logged is the output of a guard that did not become ready.
func logged(runDir string) error {
	b, err := os.ReadFile(logPath(runDir))
	if err != nil || len(b) == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(string(b[:min(len(b), 512)])))
}

// Resume returns the guard of a running run: that of an earlier agent, or a new one. Errors as
// of Start. It returns nil if the run is gone or being killed by its guard.
func (p *Launcher) Resume(ctx context.Context, instance, runDir string, run int, id runtime.Identity) (*Guard, error) {
	g, err := p.Find(runDir)
	if g != nil && g.holder.Run == run || err != nil {
		return g, err
	}
	if lives, err := process.Lives(id.Shell); !lives || Killed(runDir, run) {
		return nil, err
	}
	if g, err = p.Start(ctx, instance, runDir, run); err != nil {
		return nil, err
	}
	if err := g.Watch(id); err != nil {
		g.End()
		return nil, err
	}
	return g, nil
}

// Find returns the guard that an earlier agent started, or nil. Internal if its identity
// cannot be read, Unavailable if the host does not allow to check the process.
func (p *Launcher) Find(runDir string) (*Guard, error) {
	h, ok, err := findHolder(runDir)
	if err != nil || !ok {
		return nil, err
	}
	pidfd, ok, err := process.OpenPidfd(h.ProcessID)
	if !ok { // it has just exited, or the check failed
		return nil, err
	}
	return follow(h, pidfd), nil
}

// follow returns a handle of a guard and waits for its exit.
func follow(h holder, pidfd int) *Guard {
	_ = unix.SetNonblock(pidfd, true)
	g := &Guard{holder: h, pidfd: os.NewFile(uintptr(pidfd), "pidfd"), exited: make(chan struct{})}
	go func() {
		defer close(g.exited)
		process.AwaitEnd(g.pidfd)
		_, _ = unix.Wait4(h.PID, nil, unix.WNOHANG, nil) // if it was our child
		_ = g.pidfd.Close()
	}()
	return g
}

// Watch sends the guard the identity of the process. Unavailable if the guard has exited.
func (g *Guard) Watch(id runtime.Identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return errs.WrapAs(errs.Internal, "guard.Watch", err)
	}
	_, err = g.stdin.Write(append(b, '\n'))
	err = errors.Join(err, g.stdin.Close())
	g.stdin = nil
	return errs.WrapAs(errs.Unavailable, "guard.Watch", err)
}

// Exited is closed when the guard has exited.
func (g *Guard) Exited() <-chan struct{} { return g.exited }

// PID is the guard's process id.
func (g *Guard) PID() int { return g.holder.PID }

// End kills the guard without touching the instance, and returns when it has exited.
func (g *Guard) End() {
	if conn, err := g.pidfd.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
	<-g.exited
	if g.stdin != nil {
		_ = g.stdin.Close()
		g.stdin = nil
	}
}
