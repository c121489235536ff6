package nodeagent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/controller"
	"github.com/orreryhq/orrery/nodeagent/internal/node/membership"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/docker"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/screen"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/tmux"
)

// lookTimeout bounds the detection of one runtime.
const lookTimeout = 10 * time.Second

// PaneCommand is the hidden first argument that makes a program wait inside a terminal
// session. A program that runs an agent handles it with Pane.
const PaneCommand = "pane"

// OwnPane is the Config.Pane of a program that handles PaneCommand. It names the running
// executable even if the file was replaced meanwhile. Another process starts the command,
// so the path contains this process's PID.
func OwnPane() []string { return []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), PaneCommand} }

// Pane waits inside a terminal session and then executes the server. args follow
// PaneCommand. It returns only on failure, with the exit code.
func Pane(args []string, stderr io.Writer) int { return pane.Main(args, stderr) }

// runtimes are those that the node offers now or may offer later.
type runtimes struct {
	byName map[fleet.RuntimeName]runtime.Runtime
	// offers are the entries of the node's record.
	offers []fleet.NodeRuntime
	// docker is nil if the agent cannot use containers.
	docker *docker.Runtime
}

// close releases the resources of the runtimes. Instances keep running.
func (r runtimes) close() {
	for _, rt := range r.byName {
		if c, ok := rt.(interface{ Close() }); ok {
			c.Close()
		}
	}
}

// runtimes detects the runtimes of the host. The node's record says why a runtime is not
// offered. A container engine may appear later. dir is the absolute data directory. The
// detection ignores the end of ctx, because its result does not depend on it.
func (a *Agent) runtimes(ctx context.Context, shared process.Config, dir string) (runtimes, error) {
	r := runtimes{byName: map[fleet.RuntimeName]runtime.Runtime{}}
	for _, name := range fleet.RuntimeNames {
		err := a.lookFor(ctx, name, shared, dir, &r)
		if err != nil && name == fleet.RuntimeProcess {
			return r, err
		}
		if err != nil {
			a.cfg.Log.Info("the node does not offer a runtime", "runtime", name, "why", errs.MessageOf(err), "cause", err)
		}
		r.offers = append(r.offers, offer(name, err))
	}
	return r, nil
}

// lookFor adds a runtime to r. The error says why the node does not offer it.
func (a *Agent) lookFor(ctx context.Context, name fleet.RuntimeName, shared process.Config, dir string, r *runtimes) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	rt, err := a.runtime(ctx, name, shared, dir)
	if err != nil {
		return err
	}
	r.byName[name] = rt
	if d, ok := rt.(*docker.Runtime); ok {
		r.docker = d
		return d.Check(ctx)
	}
	return nil
}

// offer is the entry of a runtime in the node's record. A cause says why it is not offered.
func offer(name fleet.RuntimeName, cause error) fleet.NodeRuntime {
	if cause == nil {
		return fleet.NodeRuntime{Name: name, Offered: true}
	}
	return fleet.NodeRuntime{Name: name, Why: errs.MessageOf(cause)}
}

// following updates the node's record after each look at the container engine.
func (r runtimes) following(root string, c *controller.Controller, m *membership.Member, log *slog.Logger) docker.Watch {
	said := r.docker.Missing()
	return docker.Watch{
		Root:  root,
		Known: func(id string) bool { _, err := c.Instance(fleet.InstanceID(id)); return err == nil },
		OnCheck: func(ctx context.Context, missing error) {
			switch {
			case missing == nil && said != nil:
				log.Info("the node offers a runtime", "runtime", fleet.RuntimeDocker)
			case missing != nil && said == nil:
				log.Warn("the node no longer offers a runtime", "runtime", fleet.RuntimeDocker, "why", errs.MessageOf(missing), "cause", missing)
			}
			said = missing
			offers := slices.Clone(r.offers)
			for n := range offers {
				if offers[n].Name == fleet.RuntimeDocker {
					offers[n] = offer(fleet.RuntimeDocker, missing)
				}
			}
			m.SetRuntimes(ctx, offers)
		},
	}
}

func (a *Agent) runtime(ctx context.Context, name fleet.RuntimeName, shared process.Config, dir string) (runtime.Runtime, error) {
	switch name {
	case fleet.RuntimeProcess:
		return process.New(shared)
	case fleet.RuntimeTmux:
		return tmux.New(ctx, process.SessionConfig{Process: shared, Dir: filepath.Join(dir, "tmux"), Pane: a.cfg.Pane})
	case fleet.RuntimeScreen:
		return screen.New(ctx, process.SessionConfig{Process: shared, Dir: filepath.Join(dir, "screen"), Pane: a.cfg.Pane})
	case fleet.RuntimeDocker:
		return docker.New(docker.Config{Process: shared, Dir: filepath.Join(dir, "docker"), Pane: a.cfg.Pane, Log: a.cfg.Log})
	}
	return nil, errs.New(errs.Unavailable, "there is no such runtime")
}
