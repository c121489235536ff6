package usage

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

const (
	// ticksPerSecond is the kernel's unit of CPU time and start times, per second (USER_HZ).
	ticksPerSecond = 100
	// minElapsed is the least time over which a share of a processor is computed.
	minElapsed = time.Second
	// youngRun is the age up to which the average since a run's start is used.
	youngRun = time.Minute
)

// Runs measures memory and CPU time of runs. Create it with NewRuns and call Measure from one
// goroutine.
type Runs struct {
	// members returns the processes of the instances that have a control group.
	members func() (map[string][]int, error)
	last    map[fleet.InstanceID]sample
}

// sample is a measurement of a run.
type sample struct {
	server process
	ticks  uint64
	at     time.Time
	// cpu is the share of the processors, in hundredths of a core.
	cpu   float64
	known bool
}

// NewRuns returns a Runs. members returns the processes of the instances that have a control
// group; those of others are found by parent process and session.
func NewRuns(members func() (map[string][]int, error)) *Runs {
	return &Runs{members: members, last: map[fleet.InstanceID]sample{}}
}

// Measure measures runs by the process ids of their servers. A run whose server cannot be read
// has no usage. The CPU share is that since the last measurement, or since the start of a young
// run.
func (r *Runs) Measure(now time.Time, servers map[fleet.InstanceID]int) map[fleet.InstanceID]reports.Usage {
	members, _ := r.members() // without it the processes are found by parent
	var table table
	used, found := make(map[fleet.InstanceID]reports.Usage, len(servers)), make(map[fleet.InstanceID]sample, len(servers))
	for id, pid := range servers {
		server, ok := readProcess(pid)
		if !ok {
			continue
		}
		var all []process
		if pids := members[string(id)]; slices.Contains(pids, pid) {
			all = readProcesses(pids)
		} else {
			if table == nil {
				table = readTable()
			}
			all = table.runOf(server)
		}
		s := sample{server: server, at: now}
		u := reports.Usage{}
		for _, p := range all {
			s.ticks += p.ticks
			u.MemoryBytes += p.resident
		}
		s = s.after(r.last[id], sinceBoot())
		u.CPU, u.CPUKnown = s.cpu, s.known
		used[id], found[id] = u, s
	}
	r.last = found
	return used
}

// after completes a sample with the CPU share since an earlier sample of the same run. Without
// one it is the share since the start of a young run; boot is the time since the host's boot. A
// sample that comes too soon is replaced by the earlier one.
func (s sample) after(last sample, boot time.Duration) sample {
	if last.server.id() != s.server.id() {
		age := boot - time.Duration(s.server.start)*time.Second/ticksPerSecond
		if age < minElapsed || age > youngRun {
			return s
		}
		last = sample{at: s.at.Add(-age)}
	}
	elapsed := s.at.Sub(last.at)
	if elapsed < minElapsed {
		return last
	}
	// The CPU time of a process that its parent did not wait for is lost, so the sum may fall.
	if s.known = s.ticks >= last.ticks; s.known {
		s.cpu = 100 / float64(ticksPerSecond) * float64(s.ticks-last.ticks) / elapsed.Seconds()
	}
	return s
}

// process is a process as the kernel shows it.
type process struct {
	pid, parent, session int
	start                uint64
	// ticks is its CPU time, including that of the children it has waited for.
	ticks    uint64
	resident int64
}

// id distinguishes a process from a later one with the same PID.
func (p process) id() [2]uint64 { return [2]uint64{uint64(p.pid), p.start} }

// table maps PIDs to all visible processes of the host.
type table map[int]process

// readTable reads the processes that are visible to the agent.
func readTable() table {
	t := table{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return t
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				t[pid] = p
			}
		}
	}
	return t
}

// runOf returns the processes of a server's run: the server, its descendants, and its session.
// A session belongs to the run if the server or its parent leads it. Session 0 is led by a
// process outside of this PID namespace.
func (t table) runOf(server process) (all []process) {
	own := server.session > 0 && (server.session == server.pid || server.session == server.parent)
	within := map[int]bool{server.pid: true}
	var belongs func(p process, depth int) bool
	belongs = func(p process, depth int) bool {
		if in, known := within[p.pid]; known {
			return in
		}
		parent, ok := t[p.parent]
		in := own && p.session == server.session || ok && depth < len(t) && belongs(parent, depth+1)
		within[p.pid] = in
		return in
	}
	for _, p := range t {
		if belongs(p, 0) {
			all = append(all, p)
		}
	}
	return all
}

func readProcesses(pids []int) (all []process) {
	for _, pid := range pids {
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

// readProcess reads a process. ok is false if it does not exist or is not visible.
func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	return parseProcess(pid, b)
}

// Indexes of the fields of /proc/<pid>/stat after the program's name.
const (
	parentField  = 1
	sessionField = 3
	// utimeField is the first of four CPU times: user and system, then those of children.
	utimeField    = 11
	timeFields    = 4
	startField    = 19
	residentField = 21
)

// parseProcess parses the content of /proc/<pid>/stat.
func parseProcess(pid int, text []byte) (p process, ok bool) {
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name may contain anything
	if len(f) <= residentField {
		return process{}, false
	}
	p.pid = pid
	p.parent, _ = strconv.Atoi(f[parentField])
	p.session, _ = strconv.Atoi(f[sessionField])
	for _, field := range f[utimeField : utimeField+timeFields] {
		n, _ := strconv.ParseInt(field, 10, 64)
		p.ticks += uint64(max(0, n))
	}
	p.start, _ = strconv.ParseUint(f[startField], 10, 64)
	pages, _ := strconv.ParseInt(f[residentField], 10, 64)
	p.resident = max(0, pages) * int64(os.Getpagesize())
	return p, true
}

// sinceBoot is the time since the host's boot, in the clock of start times.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail
	return time.Duration(t.Nano())
}
