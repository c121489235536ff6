package docker

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// Find finds running containers of the agent; see runtime.Runtime. It counts their processes by
// their environment, as without containers.
func (r *Runtime) Find(root string) (map[string]runtime.Found, error) {
	root = resolved(root)
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	for {
		found, err := r.findOnce(ctx, root)
		if err == nil || !pause.For(ctx, retryPause) { // an instance that is not found now would be lost
			return found, err
		}
	}
}

func (r *Runtime) findOnce(ctx context.Context, root string) (map[string]runtime.Found, error) {
	all, err := r.containers(ctx, "")
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "docker.Find", err)
	}
	marked, err := r.plain.Find(root)
	if err != nil {
		return nil, err
	}
	found := map[string]runtime.Found{}
	for _, c := range all {
		id := c.Labels[instanceLabel]
		if c.State != container.StateRunning || !strings.HasPrefix(c.Labels[dirLabel], root+"/") {
			continue
		}
		f := marked[id]
		if err := r.identifyRun(ctx, &f, c.ID); err != nil {
			return nil, err
		}
		found[id] = f
	}
	return found, nil
}

// identifyRun sets the identity of a run from its container.
func (r *Runtime) identifyRun(ctx context.Context, f *runtime.Found, container string) error {
	id, err := r.identify(ctx, container, 0)
	if errs.Is(err, errs.NotFound) {
		return nil // it ended meanwhile
	}
	if err != nil {
		return err
	}
	server, env, err := commandOf(id.Shell.PID)
	if err != nil {
		return err
	}
	if id.Server, err = process.Identify(server); err != nil {
		return err
	}
	f.Identity, f.Env, f.Processes = id, env, max(f.Processes, 1)
	return nil
}

// commandOf returns the child of an init that has the instance's variables, which is the
// command, and its environment.
func commandOf(init int) (pid int, env []string, err error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(init), "task", strconv.Itoa(init), "children"))
	if err != nil {
		return 0, nil, nil // it ended, or the kernel does not list children
	}
	for child := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(child)
		if err != nil {
			continue
		}
		env, err := process.Environ(pid)
		if err != nil || env != nil {
			return pid, env, err
		}
	}
	return 0, nil, nil
}

// resolved returns a directory as in the labels: without symlinks, if it exists.
func resolved(dir string) string {
	if r, err := filepath.EvalSymlinks(dir); err == nil {
		return r
	}
	return dir
}
