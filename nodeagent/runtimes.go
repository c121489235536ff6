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
	"github.com/orreryhq/orrery/nodeagent/internal/confine"
	"github.com/orreryhq/orrery/nodeagent/internal/controller"
	"github.com/orreryhq/orrery/nodeagent/internal/membership"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/docker"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/screen"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/tmux"
)

// lookTimeout bounds the look for what the host has of one runtime.
const lookTimeout = 10 * time.Second

// PaneCommand is the hidden first argument that has a program wait inside a terminal's
// session for what it is to become. A program that runs an agent answers it with Pane.
const PaneCommand = "pane"

// OwnPane is the Config.Pane of a program that answers PaneCommand: the very file that
// runs, although it was replaced by another version meanwhile. Others start it, so it
// is named by this process.
func OwnPane() []string { return []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), PaneCommand} }

// Pane is the program that waits inside a session; args follow PaneCommand. It returns
// only when that failed, with the exit code.
func Pane(args []string, stderr io.Writer) int { return pane.Main(args, stderr) }

// ConfineCommand is the hidden first argument that has a program confine itself and
// become what follows it. A program that runs an agent answers it with Confine.
const ConfineCommand = "confine"

// OwnConfine is the Config.Confine of a program that answers ConfineCommand; see OwnPane.
func OwnConfine() []string { return []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), ConfineCommand} }

// Confine is the program that confines itself; args follow ConfineCommand. It returns
// only when that failed, with the exit code.
func Confine(args []string, stderr io.Writer) int { return confine.Main(args, stderr) }

// runtimes are those that the node can offer, now or later.
type runtimes struct {
	byName map[fleet.RuntimeName]runtime.Runtime
	// offers is what the node's record says of all there are.
	offers []fleet.NodeRuntime
	// docker follows its engine; nil where the agent can use none.
	docker *docker.Runtime
}

// close ends what runtimes do beside their runs, which go on.
func (r runtimes) close() {
	for _, rt := range r.byName {
		if c, ok := rt.(interface{ Close() }); ok {
			c.Close()
		}
	}
}

// runtimes looks for what the host has. A host without a multiplexer is none the
// worse: its record says why it does not offer it. One without a container engine may
// have one later. dir is the absolute data directory. The programs that it asks for their
// version may answer although ctx ends: what they are does not depend on it.
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

// lookFor adds a runtime to r. The error says why the node does not offer it now.
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
		return d.Look(ctx)
	}
	return nil
}

// offer is what a node's record says of a runtime that it does not offer for a cause,
// or that it offers if there is none.
func offer(name fleet.RuntimeName, cause error) fleet.NodeRuntime {
	if cause == nil {
		return fleet.NodeRuntime{Name: name, Offered: true}
	}
	return fleet.NodeRuntime{Name: name, Why: errs.MessageOf(cause)}
}

// following is what is done with every look at the container engine.
func (r runtimes) following(root string, c *controller.Controller, m *membership.Member, log *slog.Logger) docker.Care {
	said := r.docker.Missing()
	return docker.Care{
		Root:  root,
		Known: func(id string) bool { _, err := c.Instance(fleet.InstanceID(id)); return err == nil },
		Looked: func(ctx context.Context, missing error) {
			switch {
			case missing == nil && said != nil:
				log.Info("the node offers a runtime", "runtime", fleet.RuntimeDocker)
			case missing != nil && said == nil:
				log.Warn("the node does not offer a runtime any more", "runtime", fleet.RuntimeDocker, "why", errs.MessageOf(missing), "cause", missing)
			}
			said = missing
			offers := slices.Clone(r.offers)
			for n := range offers {
				if offers[n].Name == fleet.RuntimeDocker {
					offers[n] = offer(fleet.RuntimeDocker, missing)
				}
			}
			m.Offer(ctx, offers)
		},
	}
}

func (a *Agent) runtime(ctx context.Context, name fleet.RuntimeName, shared process.Config, dir string) (runtime.Runtime, error) {
	switch name {
	case fleet.RuntimeProcess:
		return process.New(shared)
	case fleet.RuntimeTmux:
		return tmux.New(ctx, tmux.Config{Process: shared, Dir: filepath.Join(dir, "tmux"), Pane: a.cfg.Pane})
	case fleet.RuntimeScreen:
		return screen.New(ctx, screen.Config{Process: shared, Dir: filepath.Join(dir, "screen"), Pane: a.cfg.Pane})
	case fleet.RuntimeDocker:
		return docker.New(docker.Config{Process: shared, Dir: filepath.Join(dir, "docker"), Pane: a.cfg.Pane, Log: a.cfg.Log})
	}
	return nil, errs.New(errs.Unavailable, "there is no such runtime")
}
