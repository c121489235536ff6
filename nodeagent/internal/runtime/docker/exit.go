package docker

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

const (
	// exitFile stores a run's exit in its run directory until the agent has journaled it.
	exitFile = "container-exit"
	// exitTimeout limits the wait for an engine that does not answer, which may be restarting,
	// to read the exit of a container.
	exitTimeout = 30 * time.Second
	// killedExitTimeout is the same for a container that the agent killed: its exit is known.
	killedExitTimeout = time.Second
	// removeTimeout limits how long the removal of the container delays Exited.
	removeTimeout = time.Second
	retryPause    = 200 * time.Millisecond
	codeKilled    = 128 + int(syscall.SIGKILL)
)

// finish runs once, after the container's end. It reads and stores the exit, removes the container,
// and closes exited. A slow or unavailable engine delays that only briefly.
func (p *run) finish() {
	exit, id := p.readExit()
	p.exit = exit
	if id != "" {
		select {
		case <-p.runtime.discard(id):
		case <-time.After(removeTimeout):
		}
	}
	p.waiting.Wait()
	if p.server != nil {
		_ = p.server.Close()
	}
	if p.init != nil {
		_ = p.init.Close()
	}
	close(p.exited)
}

// readExit returns how the run ended, as stored or from the engine, and the container's id; empty
// if it is unknown.
func (p *run) readExit() (exit runtime.Exit, container string) {
	path := filepath.Join(p.spec.RunDir, exitFile)
	var kept runtime.Exit
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &kept) == nil {
		return kept, p.findQuickly()
	}
	if p.rebooted {
		return runtime.Exit{Rebooted: true, At: time.Now()}, p.findQuickly()
	}
	exit, container, ok := p.askEngine()
	if ok {
		if b, err := json.Marshal(exit); err == nil {
			_ = os.WriteFile(path, b, 0o600) // if this fails, only an agent that is killed right now loses the exit
		}
		return exit, container
	}
	if p.init == nil {
		p.endRemains()
	}
	select {
	case <-p.killing:
		return runtime.Exit{Code: codeKilled, Signal: "KILL", Known: true, At: time.Now()}, container
	default:
		return runtime.Exit{At: time.Now()}, container
	}
}

// endRemains kills the remaining processes of a run whose identity was lost and which the engine
// does not know. It finds them by their environment.
func (p *run) endRemains() {
	remains, err := p.runtime.plain.Adopt(context.Background(), p.spec, runtime.Identity{BootID: p.id.BootID})
	if err != nil {
		p.runtime.log.Error("cannot find remaining processes of the instance", "instance", p.spec.InstanceID, "error", err)
		return
	}
	<-remains.Exited()
}

// findQuickly returns the container's id if the engine answers quickly; else it is empty.
func (p *run) findQuickly() string {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	id, _ := p.find(ctx)
	return id
}

// askEngine reads the exit from the engine, which may notice the end later than the agent. ok is
// false if the engine does not answer in time or does not know the container.
func (p *run) askEngine() (exit runtime.Exit, id string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { p.shortenAfterKill(ctx, cancel) })
	for {
		found, err := p.find(ctx)
		if err == nil && found == "" {
			return exit, "", false
		}
		if err == nil {
			id = found
			exit, ok, err = p.inspect(ctx, id)
		}
		if ok || errdefs.IsNotFound(err) {
			return exit, id, ok
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return exit, id, false
		}
	}
}

// shortenAfterKill calls enough soon after the run was killed.
func (p *run) shortenAfterKill(ctx context.Context, enough func()) {
	select {
	case <-p.killing:
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(killedExitTimeout):
		enough()
	case <-ctx.Done():
	}
}

// inspect waits until the engine has noticed the end, and reads the exit. ok is false if it has
// not.
func (p *run) inspect(ctx context.Context, id string) (exit runtime.Exit, ok bool, err error) {
	if p.init == nil { // adopted without a living init: end what still runs
		p.end(ctx)
	}
	if err := p.runtime.awaitEnd(ctx, id); err != nil {
		return exit, false, err
	}
	found, err := p.runtime.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil || found.Container.State == nil || found.Container.State.Running {
		return exit, false, err
	}
	state := found.Container.State
	exit = runtime.Exit{Code: state.ExitCode, Known: true, At: time.Now()}
	if at, err := time.Parse(time.RFC3339Nano, state.FinishedAt); err == nil && !at.IsZero() {
		exit.At = at
	}
	if state.ExitCode > 128 {
		exit.Signal = strings.TrimPrefix(unix.SignalName(syscall.Signal(state.ExitCode-128)), "SIG")
	}
	if state.OOMKilled && state.ExitCode == codeKilled {
		exit.OOM = true
		exit.LimitMiB, _ = strconv.Atoi(found.Container.Config.Labels[limitLabel])
	}
	return exit, true, nil
}
