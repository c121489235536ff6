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

// Find looks for what runs in containers of ours; see runtime.Runtime. How many
// processes there are is told by their marks, as without containers.
func (r *Runtime) Find(root string) (map[string]runtime.Found, error) {
	root = resolved(root)
	ctx, cancel := context.WithTimeout(context.Background(), greetTimeout)
	defer cancel()
	for {
		found, err := r.findOnce(ctx, root)
		if err == nil || !pause.For(ctx, askAgain) { // who is not found now never is
			return found, err
		}
	}
}

func (r *Runtime) findOnce(ctx context.Context, root string) (map[string]runtime.Found, error) {
	all, err := r.left(ctx, "")
	if err != nil {
		return nil, errs.As(errs.Unavailable, "docker.Find", err)
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
		if err := r.recognise(ctx, &f, c.ID); err != nil {
			return nil, err
		}
		found[id] = f
	}
	return found, nil
}

// recognise takes over the identity of a run from its container.
func (r *Runtime) recognise(ctx context.Context, f *runtime.Found, container string) error {
	id, err := r.identify(ctx, container, 0)
	if errs.Is(err, errs.NotFound) {
		return nil // it has ended meanwhile
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

// commandOf is the one child of an init that carries a mark, which is the command, and
// the environment it has.
func commandOf(init int) (pid int, env []string, err error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(init), "task", strconv.Itoa(init), "children"))
	if err != nil {
		return 0, nil, nil // gone, or a kernel that does not tell
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

// resolved is a directory as it stands in the labels: without links, if it is there.
func resolved(dir string) string {
	if r, err := filepath.EvalSymlinks(dir); err == nil {
		return r
	}
	return dir
}
