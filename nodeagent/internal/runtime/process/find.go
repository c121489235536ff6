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
func (r *Runtime) Find(root string) map[string]runtime.Found {
	if resolved, err := filepath.EvalSymlinks(root); err == nil {
		root = resolved // as the kernel shows it
	}
	members := map[int]string{}
	for id, pids := range r.tree.Members() {
		for _, pid := range pids {
			members[pid] = id
		}
	}
	found := map[string]runtime.Found{}
	for pid, s := range living() {
		id, member := members[pid]
		if !member {
			var agent string
			if id, agent = mark(pid); id == "" || !usesBelow(pid, root) || ownedByAnother(r.owner, agent, pid) {
				continue
			}
		}
		f := found[id]
		f.Processes++
		if runDir, ok := wraps(pid, s); ok {
			f.Identity = runtime.Identity{
				BootID: r.boot, Shell: runtime.ProcessID{PID: pid, Start: s.start},
				Server: childOf(pid, filepath.Join(runDir, "pid")),
			}
			f.Env = list(pid, "environ")
		}
		found[id] = f
	}
	return found
}

// wraps tells a wrapper by its arguments and that it leads its session: what it
// forks shows the same arguments until it has become something else.
func wraps(pid int, s stat) (runDir string, ok bool) {
	if s.session != pid {
		return "", false
	}
	argv := list(pid, "cmdline")
	if len(argv) <= runDirArg || argv[argvMarkArg] != argvMark {
		return "", false
	}
	return argv[runDirArg], true
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
