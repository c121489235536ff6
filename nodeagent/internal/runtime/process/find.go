package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Find looks through the host's processes; see runtime.Runtime. A process is one
// of root's when it is in a control group of the agent's, or when it carries an
// instance's mark and works in, reads from or writes to something below root: the
// mark alone may be of another agent on the same host.
func (r *Runtime) Find(root string) (map[string]runtime.Found, error) {
	if resolved, err := filepath.EvalSymlinks(root); err == nil {
		root = resolved // as the kernel shows it
	}
	grouped, err := r.tree.Members()
	if err != nil {
		return nil, err
	}
	members := map[int]string{}
	for id, pids := range grouped {
		for _, pid := range pids {
			members[pid] = id
		}
	}
	all, err := living()
	if err != nil {
		return nil, err
	}
	found := map[string]runtime.Found{}
	for pid, s := range all {
		id, member := members[pid]
		if !member {
			var agent string
			if id, agent, err = mark(pid); err != nil {
				return nil, err
			}
			if id == "" || !usesBelow(pid, root) || ownedByAnother(r.owner, agent, pid) {
				continue
			}
		}
		f := found[id]
		f.Processes++
		if err := r.recognise(&f, pid, s); err != nil {
			return nil, err
		}
		found[id] = f
	}
	return found, nil
}

// recognise takes over the identity of a run from its wrapper; another process tells nothing.
func (r *Runtime) recognise(f *runtime.Found, pid int, s stat) error {
	runDir, ok, err := wraps(pid, s)
	if !ok || err != nil {
		return err
	}
	server, err := childOf(pid, filepath.Join(runDir, "pid"))
	if err != nil {
		return err
	}
	f.Identity = runtime.Identity{BootID: r.boot, Shell: runtime.ProcessID{PID: pid, Start: s.start}, Server: server}
	f.Env, err = list(pid, "environ")
	return err
}

// wraps tells a wrapper by its arguments and that it leads its session: what it
// forks shows the same arguments until it has become something else.
func wraps(pid int, s stat) (runDir string, ok bool, err error) {
	if s.session != pid {
		return "", false, nil
	}
	argv, err := list(pid, "cmdline")
	if len(argv) <= runDirArg || argv[argvMarkArg] != argvMark {
		return "", false, err
	}
	return argv[runDirArg], true, nil
}

// usesBelow reports whether a process' working directory, input or output lies below a directory.
func usesBelow(pid int, root string) bool {
	for _, link := range []string{"cwd", "fd/0", "fd/1", "fd/2"} {
		target, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), link))
		if err == nil && strings.HasPrefix(target, root+"/") {
			return true
		}
	}
	return false
}
