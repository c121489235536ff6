package contract

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
)

// RunLimits tests the limits, with the host's own control groups.
func RunLimits(t *testing.T, make Maker) {
	t.Helper()
	for name, test := range map[string]func(*subject){
		"exceeding the memory limit is reported":        outOfMemory,
		"exceeding it without an agent is reported":     outOfMemoryUnseen,
		"another kill is not reported as out of memory": killedWithin,
		"a run is in its groups from its first command": heldAtOnce,
		"processes beyond the limit are not started":    tooManyProcesses,
		"a busy run is throttled to its CPU quota":      throttled,
		"an ended run leaves no groups":                 leavesNoGroups,
	} {
		t.Run(name, func(t *testing.T) {
			host := Host{Dir: shortDir(t), Owner: "test-" + strconv.Itoa(os.Getpid())}
			host.Tree, _ = cgroup.Open(host.Owner) // without it, version 1 enforces what it can
			host.Limiter = cgroup.NewLimiter(host.Owner, host.Tree)
			defer host.Tree.Close()
			defer host.Limiter.Close()
			s := &subject{T: t, host: host, maker: make}
			for _, limit := range []string{fleet.LimitMemory, fleet.LimitCPU, fleet.LimitProcesses} {
				s.needs(host.Limiter.Offer().Holds(limit), "this host does not hold "+limit+": "+host.Limiter.Offer().Why)
			}
			test(s)
		})
	}
}

// needs skips a test on a host that lacks something, or fails it under ORRERY_CI.
func (s *subject) needs(there bool, otherwise string) {
	s.Helper()
	switch {
	case there:
	case os.Getenv("ORRERY_CI") != "":
		s.Fatal(otherwise)
	default:
		s.Skip(otherwise)
	}
}

// hungry is a command that uses 300 MiB of memory.
const hungry = "head -c 300m /dev/zero | tail >/dev/null"

const memoryLimit = 64 // MiB

func outOfMemory(s *subject) {
	r := s.runtime()
	neighbour := s.start(r, s.spec("cat"))
	spec := s.spec(hungry)
	spec.Limits.MemoryMiB = memoryLimit
	if e := s.exit(s.start(r, spec)); !e.OOM || e.LimitMiB != memoryLimit || e.Signal != "KILL" || !e.Known {
		s.Errorf("exit %+v", e)
	}
	if !neighbour.Running() {
		s.Error("another run was killed too")
	}
	spec.Limits.MemoryMiB = 1024
	if e := s.exit(s.start(r, spec)); e.OOM || e.Code != 0 {
		s.Errorf("with enough memory: %+v", e)
	}
}

func outOfMemoryUnseen(s *subject) {
	spec := s.spec("until [ -e go ]; do read -t 0.02 x; done; " + hungry)
	spec.Limits.MemoryMiB = memoryLimit
	id := s.startInAgentAndKillIt(spec)
	if err := os.WriteFile(filepath.Join(spec.Dir, "go"), nil, 0o600); err != nil {
		s.Fatal(err)
	}
	await.That(s.T, "the end of the server", func() string { return await.Unless(!proctest.Lives(id.Server.PID), "it lives") })
	if e := s.exit(s.adopt(s.runtime(), spec, id)); !e.OOM || e.LimitMiB != memoryLimit || !e.Known {
		s.Errorf("exit %+v", e)
	}
}

func killedWithin(s *subject) {
	spec := s.spec("cat")
	spec.Limits.MemoryMiB = memoryLimit
	p := s.start(s.runtime(), spec)
	if err := syscall.Kill(p.Identity().Server.PID, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
	if e := s.exit(p); e.OOM || e.LimitMiB != 0 || e.Signal != "KILL" {
		s.Errorf("exit %+v", e)
	}
}

func heldAtOnce(s *subject) {
	spec := s.spec("cat /proc/self/cgroup >got; exec cat")
	spec.Limits = limited
	s.start(s.runtime(), spec)
	own := "/orrery-" + s.host.Owner + "/" + spec.InstanceID
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool {
		for _, c := range []string{"memory", "cpu", "pids"} {
			if !strings.HasSuffix(cmp.Or(group(got, c), group(got, "")), own) {
				return false
			}
		}
		return true
	})
}

// limited sets a limit of each controller.
var limited = runtime.Limits{MemoryMiB: memoryLimit, CPU: 10, CPUWeight: 50, Processes: 6}

// group returns a process's group of a controller from /proc/PID/cgroup.
func group(cgroups, controller string) string {
	for line := range strings.Lines(cgroups) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			return parts[2]
		}
	}
	return ""
}

// groupDir returns a file in a process's group of a controller.
func (s *subject) groupDir(pid int, controller, file string) string {
	s.Helper()
	in := said(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	for _, dir := range []string{
		filepath.Join("/sys/fs/cgroup", controller, group(in, controller)),
		filepath.Join("/sys/fs/cgroup", group(in, "")), filepath.Join("/sys/fs/cgroup/unified", group(in, "")),
	} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil && strings.Contains(dir, s.host.Owner) {
			return dir
		}
	}
	s.Fatalf("no group of %s: %s", controller, in)
	return ""
}

func tooManyProcesses(s *subject) {
	spec := s.spec("for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; wait")
	spec.Limits = limited
	s.start(s.runtime(), spec)
	s.eventually(spec.LogPath, func(l string) bool { return strings.Contains(l, "fork") })
	mine := proctest.Where(s, func(p proctest.Process) bool { return p.Carries("ORRERY_INSTANCE_ID=" + spec.InstanceID) })
	if most := limited.Processes + 1; len(mine) > most {
		s.Errorf("%d processes, %d at most and the shell around them", len(mine), limited.Processes)
	}
}

func throttled(s *subject) {
	spec := s.spec("while :; do :; done")
	spec.Limits = limited
	p := s.start(s.runtime(), spec)
	dir := s.groupDir(p.Identity().Server.PID, "cpu", "cpu.stat")
	s.eventually(filepath.Join(dir, "cpu.stat"), func(stat string) bool {
		return strings.Contains(stat, "nr_throttled ") && !strings.Contains(stat, "nr_throttled 0\n")
	})
}

func leavesNoGroups(s *subject) {
	spec := s.spec("cat")
	spec.Limits = limited
	p := s.start(s.runtime(), spec)
	var dirs []string
	for controller, file := range map[string]string{"memory": "cgroup.procs", "cpu": "cpu.stat", "pids": "pids.max"} {
		dirs = append(dirs, s.groupDir(p.Identity().Server.PID, controller, file))
	}
	if err := p.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			s.Errorf("%s is still there", dir)
		}
	}
}
