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

// startTimeout bounds the start of a guard on a machine that thrashes.
const startTimeout = 10 * time.Second

// Spec is what a guard is told.
type Spec struct {
	// Instance and Run are what it guards.
	Instance string `json:"instance"`
	Run      int    `json:"run"`
	// RunDir is the run's own directory, Deadline the file of the node's deadline.
	RunDir   string `json:"runDir"`
	Deadline string `json:"deadline"`
	// Tree is where the agent's control groups are; empty where there are none.
	Tree string `json:"tree,omitempty"`
	// Owner names them; see process.Config.
	Owner string `json:"owner"`
}

// Post is where guards are started from.
type Post struct {
	// Command is the program that calls Main, with its arguments. Empty: there are no guards here.
	Command []string
	// Deadline, Tree and Owner are handed to every guard, see Spec.
	Deadline, Tree, Owner string
}

// Guard is a guard as its agent sees it.
type Guard struct {
	held   holder
	tell   *os.File // nil once it knows whom to guard
	pidfd  *os.File
	exited chan struct{}
}

// Start runs a guard for a run that is about to be started, and ends what guarded
// the run before. Unavailable when there is no such program, or it does not stand up
// before ctx ends.
func (p *Post) Start(ctx context.Context, instance, runDir string, run int) (*Guard, error) {
	if len(p.Command) == 0 {
		return nil, errs.New(errs.Unavailable, "this agent cannot run guards: exclusive instances need one")
	}
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return nil, errs.As(errs.Unavailable, "guard.Start", err)
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
		return nil, errs.As(errs.Internal, "guard.Start", err)
	}
	g, said, err := p.spawn(runDir, instance, run)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "guard.Start", err)
	}
	defer said.Close()
	if err := g.await(ctx, said, append(spec, '\n')); err != nil {
		g.End()
		return nil, errs.As(errs.Unavailable, "guard.Start", errors.Join(err, logged(runDir)))
	}
	return g, nil
}

// spawn starts the process in a session of its own, with nothing of the agent's environment.
func (p *Post) spawn(runDir, instance string, run int) (g *Guard, said *os.File, err error) {
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
	stdin, tell, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, stdin)
	said, stdout, err := os.Pipe()
	if err != nil {
		_ = tell.Close()
		return nil, nil, err
	}
	ends = append(ends, stdout)
	var pidfd int
	child, err := os.StartProcess(p.Command[0], append(slices.Clone(p.Command), instance), &os.ProcAttr{
		Dir: "/", Files: []*os.File{stdin, stdout, log}, Env: environment(),
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err != nil {
		_, _ = tell.Close(), said.Close()
		return nil, nil, err
	}
	g = follow(holder{runtime.ProcessID{PID: child.Pid}, run}, pidfd)
	g.tell = tell
	_ = child.Release() // the pidfd is what we wait on
	return g, said, nil
}

// environment keeps a guard, which does next to nothing, as small as it can be. The
// runtime wants to find a shell although a guard starts nothing.
func environment() []string {
	return []string{"GOMAXPROCS=1", "GOGC=20", "GOTRACEBACK=single", "PATH=" + os.Getenv("PATH")}
}

// await gives the guard its spec and waits until it stands.
func (g *Guard) await(ctx context.Context, said *os.File, spec []byte) error {
	_, told := g.tell.Write(spec) // what did not listen may have said why
	end := time.Now().Add(startTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	_ = said.SetReadDeadline(end)
	defer context.AfterFunc(ctx, func() { _ = said.SetReadDeadline(time.Now()) })()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err == nil && line != ready {
		err = errs.New(errs.Internal, "it said %q", line)
	}
	return errors.Join(err, told)
}

// logged is what a guard that did not stand up said of it.
func logged(runDir string) error {
	b, err := os.ReadFile(logPath(runDir))
	if err != nil || len(b) == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(string(b[:min(len(b), 512)])))
}

// Resume has the guard of an earlier agent go on with a run that lives, or runs
// another for it. Errors as of Start. It is nil when the run has gone, or its guard
// is ending it.
func (p *Post) Resume(ctx context.Context, instance, runDir string, run int, id runtime.Identity) (*Guard, error) {
	g, err := p.Find(runDir)
	if g != nil && g.held.Run == run || err != nil {
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

// Find finds the guard that an earlier agent started; nil when there is none.
// Internal when there is one that cannot be told, Unavailable when the host does
// not let it be told whether there is.
func (p *Post) Find(runDir string) (*Guard, error) {
	h, ok, err := present(runDir)
	if err != nil || !ok {
		return nil, err
	}
	pidfd, ok, err := process.Hold(h.ProcessID)
	if !ok { // it has just gone, or cannot be told
		return nil, err
	}
	return follow(h, pidfd), nil
}

// follow waits for a guard's end.
func follow(h holder, pidfd int) *Guard {
	_ = unix.SetNonblock(pidfd, true)
	g := &Guard{held: h, pidfd: os.NewFile(uintptr(pidfd), "pidfd"), exited: make(chan struct{})}
	go func() {
		defer close(g.exited)
		process.AwaitEnd(g.pidfd)
		_, _ = unix.Wait4(h.PID, nil, unix.WNOHANG, nil) // if it was our child
		_ = g.pidfd.Close()
	}()
	return g
}

// Watch tells the guard whom to guard. Unavailable when it has gone.
func (g *Guard) Watch(id runtime.Identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return errs.As(errs.Internal, "guard.Watch", err)
	}
	_, err = g.tell.Write(append(b, '\n'))
	err = errors.Join(err, g.tell.Close())
	g.tell = nil
	return errs.As(errs.Unavailable, "guard.Watch", err)
}

// Exited is closed when the guard has gone.
func (g *Guard) Exited() <-chan struct{} { return g.exited }

// PID is the guard's process id.
func (g *Guard) PID() int { return g.held.PID }

// End ends the guard without touching what it guards, and returns when it is gone.
func (g *Guard) End() {
	if conn, err := g.pidfd.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
	<-g.exited
	if g.tell != nil {
		_ = g.tell.Close()
		g.tell = nil
	}
}
