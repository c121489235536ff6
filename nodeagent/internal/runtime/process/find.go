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
	all, err := r.scanner.scan(0)
	if err != nil {
		return nil, err
	}
	found := map[string]runtime.Found{}
	for _, p := range all {
		id, member := members[p.PID]
		if !member {
			var agent string
			if id, agent, err = p.mark(); err != nil {
				return nil, err
			}
			if id == "" || !usesBelow(p.PID, root) || ownedByAnother(r.owner, agent, p.PID) {
				continue
			}
		}
		f := found[id]
		f.Processes++
		if err := r.identifyRun(&f, p); err != nil {
			return nil, err
		}
		found[id] = f
	}
	return found, nil
}

// identifyRun sets the identity of a run if the process is its wrapper.
func (r *Runtime) identifyRun(f *runtime.Found, p *liveProcess) error {
	runDir, ok, err := wrapperRunDir(p)
	if !ok || err != nil {
		return err
	}
	server, err := childOf(p.PID, filepath.Join(runDir, "pid"))
	if err != nil {
		return err
	}
	f.Identity = runtime.Identity{BootID: r.boot, Shell: p.ProcessID, Server: server}
	f.Env, err = list(p.PID, "environ")
	return err
}

// wrapperRunDir returns the run directory if the process is a wrapper: it has the wrapper's
// arguments and leads its session. A forked child has the same arguments until its exec.
func wrapperRunDir(p *liveProcess) (runDir string, ok bool, err error) {
	if p.session != p.PID {
		return "", false, nil
	}
	argv, err := list(p.PID, "cmdline")
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
