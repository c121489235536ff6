package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Find searches the host's processes; see runtime.Runtime. A process belongs to root if it is in a
// control group of the agent, or if it has an instance's mark and its working directory, input
// or output is below root. The mark alone may be that of another agent on the host.
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
		if err := r.identifyRun(&f, pid, s); err != nil {
			return nil, err
		}
		found[id] = f
	}
	return found, nil
}

// identifyRun sets the identity of a run if the process is its wrapper.
func (r *Runtime) identifyRun(f *runtime.Found, pid int, s stat) error {
	runDir, ok, err := wrapperRunDir(pid, s)
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

// wrapperRunDir returns the run directory if the process is a wrapper: it has the wrapper's
// arguments and leads its session. A forked child has the same arguments until its exec.
func wrapperRunDir(pid int, s stat) (runDir string, ok bool, err error) {
	if s.session != pid {
		return "", false, nil
	}
	argv, err := list(pid, "cmdline")
	if len(argv) <= runDirArg || argv[argvMarkArg] != argvMark {
		return "", false, err
	}
	return argv[runDirArg], true, nil
}

// usesBelow reports whether a process's working directory, input or output is below root.
func usesBelow(pid int, root string) bool {
	for _, link := range []string{"cwd", "fd/0", "fd/1", "fd/2"} {
		target, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), link))
		if err == nil && strings.HasPrefix(target, root+"/") {
			return true
		}
	}
	return false
}
