package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// killAgain is how long a killed container may take to end before the engine is asked
// to help: one that is paused ends when it goes on.
const killAgain = 300 * time.Millisecond

// run is one container. exit is written before exited is closed and not after.
type run struct {
	runtime *Runtime
	spec    runtime.Spec
	// container is its id; empty for an adopted one, which is found by its labels.
	container string
	// id has the container's init as Shell and the command as Server.
	id       runtime.Identity
	rebooted bool

	// killing is closed when we were told to kill it, ended when its init has ended.
	killing, ended chan struct{}
	once           sync.Once

	// init and server are pidfds of the two; nil when the run was found ended, server
	// also when its pid is not known.
	init, server *os.File
	waiting      sync.WaitGroup

	exited chan struct{}
	exit   runtime.Exit
}

var _ runtime.Process = (*run)(nil)

func (r *Runtime) newRun(s runtime.Spec, container string, id runtime.Identity) *run {
	return &run{
		runtime: r, spec: s, container: container, id: id,
		killing: make(chan struct{}), ended: make(chan struct{}), exited: make(chan struct{}),
	}
}

// bring starts a container and has the command run in it.
func (r *Runtime) bring(ctx context.Context, s runtime.Spec, c made, door *pane.Door, f files) (*run, error) {
	bounded, cancel := within(ctx)
	defer cancel()
	if _, err := r.engine.ContainerStart(bounded, c.id, client.ContainerStartOptions{}); err != nil {
		return nil, refused("start", err)
	}
	caller, err := r.awaitCall(bounded, c.id, door)
	if err != nil {
		return nil, err
	}
	defer caller.Close()
	id, err := r.identify(bounded, c.id, caller.PID())
	if errs.Is(err, errs.NotFound) {
		return nil, errs.New(errs.Unavailable, "the container ended at once")
	}
	if err != nil {
		return nil, err
	}
	pidfd, ok, err := process.Hold(id.Shell)
	if err != nil || !ok {
		return nil, errs.As(errs.Unavailable, "docker.Start", errors.Join(err, errors.New("the container has ended at once")))
	}
	uid, gid := caller.Owner()
	if err := accept(caller.PID(), uid, gid); err != nil {
		_ = unix.Close(pidfd)
		return nil, err
	}
	give(s.Dir, uid, gid, s.Confine.ReadOnlyTemplates)
	err = caller.Run(pane.Program{Dir: directory(s), Argv: []string{s.Command}, Env: c.env, Stdio: [3]*os.File{f.stdin, f.log, f.log}, Lock: s.Lock})
	if err != nil {
		_ = unix.Close(pidfd)
		return nil, &errs.Error{Op: "docker.Start", Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf("the command cannot be run in the image: %v", errors.Unwrap(err))}
	}
	p := r.newRun(s, c.id, id)
	p.watch(pidfd)
	return p, nil
}

// accept refuses a process that runs in a container as somebody who may not.
func accept(pid, uid, gid int) error {
	groups, err := groupsOf(pid)
	if err != nil {
		return errs.As(errs.Unavailable, "docker.Start", err)
	}
	self, err := agent()
	if err != nil {
		return err
	}
	return self.mayOwn(owner{uid, append(groups, gid)})
}

// awaitCall waits for the program in the container to call, or for the container to end
// without it.
func (r *Runtime) awaitCall(ctx context.Context, id string, door *pane.Door) (*pane.Pane, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		if r.awaitEnd(ctx, id) == nil {
			cancel(errNoCall)
		}
	})
	p, err := door.Await(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errNoCall) {
		return nil, errNoCall
	}
	return p, err
}

var errNoCall = errs.New(errs.Unavailable, "the agent's own program does not run in the image: is it one for another processor, "+
	"or has it no C library while the agent was built with cgo? Build the agent with CGO_ENABLED=0. A program needs some 16 of limits.processes to come up")

// awaitEnd returns when the engine knows a container to have ended.
func (r *Runtime) awaitEnd(ctx context.Context, id string) error {
	wait := r.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{})
	select {
	case err := <-wait.Error:
		return err
	case <-wait.Result:
		return nil
	case <-ctx.Done(): // the client's reader ends as well, once it is rid of what it has read
		select {
		case <-wait.Error:
		case <-wait.Result:
		}
		return ctx.Err()
	}
}

// identify is what a container's init and its command are recognised by.
func (r *Runtime) identify(ctx context.Context, container string, server int) (runtime.Identity, error) {
	id := runtime.Identity{BootID: r.plain.BootID()}
	found, err := r.engine.ContainerInspect(ctx, container, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) || err == nil && (found.Container.State == nil || found.Container.State.Pid == 0) {
		return id, errs.New(errs.NotFound, "the container has ended")
	}
	if err != nil {
		return id, refused("show", err)
	}
	id.Shell, err = process.Identify(found.Container.State.Pid)
	if err == nil {
		id.Server, err = process.Identify(server)
	}
	return id, err
}

func (p *run) Identity() runtime.Identity { return p.id }
func (p *run) Exited() <-chan struct{}    { return p.exited }
func (p *run) Exit() runtime.Exit         { return p.exit }

// Attach is empty: the console is the agent's, and a shell is one "docker exec" away.
func (p *run) Attach() string { return "" }

func (p *run) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return p.init != nil
	}
}

// watch waits for the end of a living run; pidfd is its init's.
func (p *run) watch(pidfd int) {
	p.init = os.NewFile(uintptr(pidfd), "pidfd")
	if fd, ok, _ := process.Hold(p.id.Server); ok {
		p.server = os.NewFile(uintptr(fd), "pidfd")
		p.waiting.Go(p.prod)
	}
	go p.await()
}

// prod has the init tell of the server's end even if somebody stopped it.
func (p *run) prod() {
	process.AwaitEnd(p.server)
	_ = process.SendSignal(p.init, unix.SIGCONT)
}

// await parks until the init ends, with which the kernel has ended all else in there.
func (p *run) await() {
	process.AwaitEnd(p.init)
	close(p.ended)
	p.finish()
}

func (p *run) WriteLine(line string) error {
	if !p.Running() {
		return errs.New(errs.Conflict, "the server has ended and reads no input")
	}
	return process.WriteInput(p.spec.RunDir, line)
}

func (p *run) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if p.server != nil && process.SendSignal(p.server, sig) == nil {
		return nil
	}
	// It is another user's, or not known: the engine may, and the init hands it on.
	ctx, cancel := within(context.Background())
	defer cancel()
	return p.tell(ctx, sig)
}

// tell has the engine signal the container.
func (p *run) tell(ctx context.Context, sig syscall.Signal) error {
	id, err := p.find(ctx)
	if err != nil || id == "" {
		return err
	}
	_, err = p.runtime.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: unix.SignalName(sig)})
	return errs.As(errs.Unavailable, "docker.Signal", err)
}

func (p *run) Kill(ctx context.Context) error {
	p.once.Do(func() { close(p.killing) })
	for first := true; ; first = false {
		select {
		case <-p.ended: // what has its labels by now may be the next one
		default:
			if process.SendSignal(p.init, unix.SIGKILL) != nil || !first {
				p.force(ctx)
			}
		}
		select {
		case <-p.exited:
			return nil
		case <-ctx.Done():
			return errs.Wrap("docker.Kill", ctx.Err())
		case <-time.After(killAgain):
		}
	}
}

// force has the engine end a container that does not by itself. It waits for no engine
// once it has ended.
func (p *run) force(ctx context.Context) {
	ctx, cancel := until(ctx, p.ended)
	defer cancel()
	p.end(ctx)
}

func (p *run) end(ctx context.Context) {
	if id, err := p.find(ctx); err == nil && id != "" {
		_, _ = p.runtime.engine.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		_, _ = p.runtime.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "SIGKILL"})
	}
}

// find is the container's id; empty when there is none any more.
func (p *run) find(ctx context.Context) (string, error) {
	if p.container != "" {
		return p.container, nil
	}
	all, err := p.runtime.left(ctx, p.spec.InstanceID)
	if err != nil || len(all) == 0 {
		return "", errs.As(errs.Unavailable, "docker.find", err)
	}
	return all[0].ID, nil
}
