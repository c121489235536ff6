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
)

const (
	// ticks is the kernel's unit of processor time and start times, per second (USER_HZ).
	ticks = 100
	// shortest is the least time that a share of a processor is computed over.
	shortest = time.Second
	// young is the age up to which a run's average since its start counts as its CPU lately.
	young = time.Minute
)

// Runs measures memory and processor time of runs. Make it with NewRuns and call Measure
// from one goroutine.
type Runs struct {
	// members are the processes of the instances that have a control group, by instance.
	members func() (map[string][]int, error)
	last    map[fleet.InstanceID]sample
}

// sample is what one measurement of a run found.
type sample struct {
	server process
	ticks  uint64
	at     time.Time
	// cpu is the share of the processors, in hundredths of a core.
	cpu   float64
	known bool
}

// NewRuns makes a meter. members are the processes of the instances that have a control
// group; the others are found as descendants of their server and by its session.
func NewRuns(members func() (map[string][]int, error)) *Runs {
	return &Runs{members: members, last: map[fleet.InstanceID]sample{}}
}

// Measure measures runs, given by the process ids of their servers. A run whose server
// cannot be looked at has no usage. The share of the processors is that since the last
// measurement, or since the start of a run that is young.
func (r *Runs) Measure(now time.Time, servers map[fleet.InstanceID]int) map[fleet.InstanceID]fleet.Usage {
	members, _ := r.members() // what is not known this way is found by descent
	var table table
	used, found := make(map[fleet.InstanceID]fleet.Usage, len(servers)), make(map[fleet.InstanceID]sample, len(servers))
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
		u := fleet.Usage{}
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

// after completes a sample with its share of the processors since an earlier sample of the
// same run. Without one it is that since the start of a young run; boot is the time since
// the host's boot. A sample that comes too soon is dropped in favour of the earlier one.
func (s sample) after(last sample, boot time.Duration) sample {
	if last.server.id() != s.server.id() {
		age := boot - time.Duration(s.server.start)*time.Second/ticks
		if age < shortest || age > young {
			return s
		}
		last = sample{at: s.at.Add(-age)}
	}
	elapsed := s.at.Sub(last.at)
	if elapsed < shortest {
		return last
	}
	// The time of a process that ended unseen by its parent is lost, so the sum may fall.
	if s.known = s.ticks >= last.ticks; s.known {
		s.cpu = 100 / float64(ticks) * float64(s.ticks-last.ticks) / elapsed.Seconds()
	}
	return s
}

// process is what the kernel says of a process.
type process struct {
	pid, parent, session int
	start                uint64
	// ticks is its processor time with that of the children it has waited for.
	ticks    uint64
	resident int64
}

// id tells a process from a later one with the same number.
func (p process) id() [2]uint64 { return [2]uint64{uint64(p.pid), p.start} }

// table is every process of the host by its number.
type table map[int]process

// readTable reads the processes that this one may look at.
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

// runOf returns the processes of a server's run: the server, its descendants, and whoever is in
// its session. A session that the server or its parent leads is the run's own; session 0
// is led by nobody whom this host shows.
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

// readProcess reads a process; ok is false when there is none, or it may not be looked at.
func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	return parseProcess(pid, b)
}

// The fields of /proc/<pid>/stat behind the program's name, from 0.
const (
	parentField  = 1
	sessionField = 3
	// utimeField is the first of four kinds of processor time, the last two of which are
	// those of children.
	utimeField    = 11
	timeFields    = 4
	startField    = 19
	residentField = 21
)

// parseProcess reads a text like /proc/<pid>/stat.
func parseProcess(pid int, text []byte) (p process, ok bool) {
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name may hold anything
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

// sinceBoot is the time since the host's boot, as start times count it.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // this clock is always there
	return time.Duration(t.Nano())
}
