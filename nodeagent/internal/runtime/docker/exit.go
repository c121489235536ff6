package docker

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	askAgain       = 200 * time.Millisecond
	codeKilled     = 128 + int(syscall.SIGKILL)
)

// finish runs once, after the container's end: its exit is read and kept, what the
// engine has of it is removed, then the end is told.
func (p *run) finish() {
	p.exit = p.readExit()
	ctx, cancel := within(context.Background())
	defer cancel()
	if id, err := p.find(ctx); err == nil && id != "" {
		p.runtime.remove(ctx, id)
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

// readExit is how the run ended: as an earlier agent kept it, else as the engine knows it.
func (p *run) readExit() runtime.Exit {
	path := filepath.Join(p.runDir, exitFile)
	var kept runtime.Exit
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &kept) == nil {
		return kept
	}
	if p.rebooted {
		return runtime.Exit{Rebooted: true, At: time.Now()}
	}
	exit, ok := p.ask()
	switch {
	case !ok && p.killed.Load():
		return runtime.Exit{Code: codeKilled, Signal: "KILL", Known: true, At: time.Now()}
	case !ok:
		return runtime.Exit{At: time.Now()}
	}
	if b, err := json.Marshal(exit); err == nil {
		_ = os.WriteFile(path, b, 0o600) // without, only an agent that is killed now does not know it
	}
	return exit
}

// ask asks the engine, which may learn of the end a little later than we do.
func (p *run) ask() (exit runtime.Exit, ok bool) {
	patience := exitPatience
	if p.killed.Load() {
		patience = killedPatience
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		id, err := p.find(ctx)
		if err == nil && id == "" {
			return exit, false
		}
		if err == nil {
			exit, ok, err = p.inspect(ctx, id)
		}
		if ok || errdefs.IsNotFound(err) {
			return exit, ok
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return exit, false
		}
	}
}

// inspect waits for the engine to know of the end, and reads what it knows. ok is false
// while it does not.
func (p *run) inspect(ctx context.Context, id string) (exit runtime.Exit, ok bool, err error) {
	if p.init == nil { // its identity was lost, or it had ended: whatever runs is ended
		p.force(ctx)
	}
	wait := p.runtime.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{})
	select {
	case err = <-wait.Error:
	case <-wait.Result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
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
