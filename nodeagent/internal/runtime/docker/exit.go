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
	// exitFile is where a run's exit is kept until it is the agent's, in its own directory.
	exitFile = "container-exit"
	// exitPatience is how long an engine that does not answer is waited for with the
	// exit of a container that has ended: it may be being restarted.
	exitPatience = 30 * time.Second
	// killedPatience is the same for one that we killed ourselves: its code is known anyway.
	killedPatience = time.Second
	// removePatience is how long the end is not told for the removal of its container.
	removePatience = time.Second
	askAgain       = 200 * time.Millisecond
	codeKilled     = 128 + int(syscall.SIGKILL)
)

// finish runs once, after the container's end: its exit is read and kept, what the
// engine has of it is removed, then the end is told. An engine that is slow or away
// does not keep the end from being told.
func (p *run) finish() {
	exit, id := p.readExit()
	p.exit = exit
	if id != "" {
		select {
		case <-p.runtime.discard(id):
		case <-time.After(removePatience):
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

// readExit is how the run ended: as an earlier agent kept it, else as the engine knows
// it. container is its id; empty when that is not known.
func (p *run) readExit() (exit runtime.Exit, container string) {
	path := filepath.Join(p.spec.RunDir, exitFile)
	var kept runtime.Exit
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &kept) == nil {
		return kept, p.findAtOnce()
	}
	if p.rebooted {
		return runtime.Exit{Rebooted: true, At: time.Now()}, p.findAtOnce()
	}
	exit, container, ok := p.ask()
	if ok {
		if b, err := json.Marshal(exit); err == nil {
			_ = os.WriteFile(path, b, 0o600) // without, only an agent that is killed now does not know it
		}
		return exit, container
	}
	if p.init == nil {
		p.clear()
	}
	select {
	case <-p.killing:
		return runtime.Exit{Code: codeKilled, Signal: "KILL", Known: true, At: time.Now()}, container
	default:
		return runtime.Exit{At: time.Now()}, container
	}
}

// clear ends what lives of a run whose identity was lost and of which the engine says
// nothing: processes are told by their marks.
func (p *run) clear() {
	remains, err := p.runtime.plain.Adopt(context.Background(), p.spec, runtime.Identity{BootID: p.id.BootID})
	if err != nil {
		p.runtime.log.Error("it cannot be told whether something of it lives on", "instance", p.spec.InstanceID, "error", err)
		return
	}
	<-remains.Exited()
}

// findAtOnce is the container's id if the engine says it without delay; else empty.
func (p *run) findAtOnce() string {
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	id, _ := p.find(ctx)
	return id
}

// ask asks the engine, which may learn of the end a little later than we do. ok is
// false when it does not say in time, or does not know the container.
func (p *run) ask() (exit runtime.Exit, id string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), exitPatience)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { p.hurry(ctx, cancel) })
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
		case <-time.After(askAgain):
		case <-ctx.Done():
			return exit, id, false
		}
	}
}

// hurry cuts the patience of one that is killed, also when that is asked for meanwhile.
func (p *run) hurry(ctx context.Context, enough func()) {
	select {
	case <-p.killing:
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(killedPatience):
		enough()
	case <-ctx.Done():
	}
}

// inspect waits for the engine to know of the end, and reads what it knows. ok is false
// while it does not.
func (p *run) inspect(ctx context.Context, id string) (exit runtime.Exit, ok bool, err error) {
	if p.init == nil { // its identity was lost, or it had ended: whatever runs is ended
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
