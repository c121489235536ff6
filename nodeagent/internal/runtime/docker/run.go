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

// killRetry is how long a killed container may take to end before the engine is asked to kill
// it. A paused container ends only after it is unpaused.
const killRetry = 300 * time.Millisecond

// run is one container. exit is written only before exited is closed.
type run struct {
	runtime *Runtime
	spec    runtime.Spec
	// container is its id; empty for an adopted run, which is found by its labels.
	container string
	// id has the container's init as Shell and the command as Server.
	id       runtime.Identity
	rebooted bool

	// killing is closed when the agent kills the run, ended when its init has ended.
	killing, ended chan struct{}
	once           sync.Once

	// init and server are pidfds; nil if the run had ended when it was adopted. server is also
	// nil if its pid is unknown.
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

// run starts a container and executes the command in it.
func (r *Runtime) run(ctx context.Context, s runtime.Spec, c created, listener *pane.Listener, f files) (*run, error) {
	bounded, cancel := withCallTimeout(ctx)
	defer cancel()
	if _, err := r.engine.ContainerStart(bounded, c.id, client.ContainerStartOptions{}); err != nil {
		return nil, engineError("start", err)
	}
	caller, err := r.awaitConnection(bounded, c.id, listener)
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
	pidfd, ok, err := process.OpenPidfd(id.Shell)
	if err != nil || !ok {
		return nil, errs.WrapAs(errs.Unavailable, "docker.Start", errors.Join(err, errors.New("the container has ended at once")))
	}
	uid, gid := caller.Owner()
	if err := checkUser(caller.PID(), uid, gid); err != nil {
		_ = unix.Close(pidfd)
		return nil, err
	}
	chownDir(s.Dir, uid, gid, s.Confine.ReadOnlyTemplates)
	err = caller.Run(pane.Program{Dir: directory(s), Argv: []string{s.Command}, Env: c.env, Stdio: [3]*os.File{f.stdin, f.log, f.log}, Lock: s.Lock})
	if err != nil {
		_ = unix.Close(pidfd)
		return nil, &errs.Error{Op: "docker.Start", Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf("the command cannot be run in the image: %v", errors.Unwrap(err))}
	}
	p := r.newRun(s, c.id, id)
	p.watch(pidfd)
	return p, nil
}

// checkUser rejects a process that runs as a user whom the agent cannot control.
func checkUser(pid, uid, gid int) error {
	groups, err := groupsOf(pid)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "docker.Start", err)
	}
	self, err := agent()
	if err != nil {
		return err
	}
	return self.mayRunAs(owner{uid, append(groups, gid)})
}

// awaitConnection waits until the pane program in the container connects, or the container ends.
func (r *Runtime) awaitConnection(ctx context.Context, id string, listener *pane.Listener) (*pane.Pane, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		if r.awaitEnd(ctx, id) == nil {
			cancel(errNotConnected)
		}
	})
	p, err := listener.Accept(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errNotConnected) {
		return nil, errNotConnected
	}
	return p, err
}

var errNotConnected = errs.New(errs.Unavailable, "the agent's own program does not run in the image. Use an image for this processor; build the agent with "+
	"CGO_ENABLED=0, so that it needs no C library; and allow at least 16 in limits.processes")

// awaitEnd returns when the engine reports that a container has ended.
func (r *Runtime) awaitEnd(ctx context.Context, id string) error {
	wait := r.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{})
	select {
	case err := <-wait.Error:
		return err
	case <-wait.Result:
		return nil
	case <-ctx.Done(): // the client's reader ends after it has delivered a value
		select {
		case <-wait.Error:
		case <-wait.Result:
		}
		return ctx.Err()
	}
}

// identify returns the identity of a container's init and command.
func (r *Runtime) identify(ctx context.Context, container string, server int) (runtime.Identity, error) {
	id := runtime.Identity{BootID: r.plain.BootID()}
	found, err := r.engine.ContainerInspect(ctx, container, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) || err == nil && (found.Container.State == nil || found.Container.State.Pid == 0) {
		return id, errs.New(errs.NotFound, "the container has ended")
	}
	if err != nil {
		return id, engineError("show", err)
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

// Attach returns "": the console is the agent's, and docker exec opens a shell.
func (p *run) Attach() string { return "" }

func (p *run) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return p.init != nil
	}
}

// watch waits for the end of a living run. pidfd is its init's.
func (p *run) watch(pidfd int) {
	p.init = os.NewFile(uintptr(pidfd), "pidfd")
	if fd, ok, _ := process.OpenPidfd(p.id.Server); ok {
		p.server = os.NewFile(uintptr(fd), "pidfd")
		p.waiting.Go(p.resumeOnEnd)
	}
	go p.await()
}

// resumeOnEnd continues a stopped init after the server's end, so that it can exit.
func (p *run) resumeOnEnd() {
	process.AwaitEnd(p.server)
	_ = process.SendSignal(p.init, unix.SIGCONT)
}

// await waits until the init ends; the kernel then ends all other processes in the container.
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
	// The server belongs to another user or is unknown: the engine signals the init, which forwards it.
	ctx, cancel := withCallTimeout(context.Background())
	defer cancel()
	return p.signalContainer(ctx, sig)
}

// signalContainer lets the engine signal the container.
func (p *run) signalContainer(ctx context.Context, sig syscall.Signal) error {
	id, err := p.find(ctx)
	if err != nil || id == "" {
		return err
	}
	_, err = p.runtime.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: unix.SignalName(sig)})
	return errs.WrapAs(errs.Unavailable, "docker.Signal", err)
}

func (p *run) Kill(ctx context.Context) error {
	p.once.Do(func() { close(p.killing) })
	for first := true; ; first = false {
		select {
		case <-p.ended: // the labels may belong to the next container already
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
		case <-time.After(killRetry):
		}
	}
}

// force lets the engine kill a container that does not end. It returns when the container has
// ended, even if the engine does not answer.
func (p *run) force(ctx context.Context) {
	ctx, cancel := withCallTimeoutUntil(ctx, p.ended)
	defer cancel()
	p.end(ctx)
}

func (p *run) end(ctx context.Context) {
	if id, err := p.find(ctx); err == nil && id != "" {
		_, _ = p.runtime.engine.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		_, _ = p.runtime.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "SIGKILL"})
	}
}

// find returns the container's id; empty if it no longer exists.
func (p *run) find(ctx context.Context) (string, error) {
	if p.container != "" {
		return p.container, nil
	}
	all, err := p.runtime.containers(ctx, p.spec.InstanceID)
	if err != nil || len(all) == 0 {
		return "", errs.WrapAs(errs.Unavailable, "docker.find", err)
	}
	return all[0].ID, nil
}
