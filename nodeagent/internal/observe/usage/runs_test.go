package usage

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
)

// The modes in which the test binary is a measured server.
const (
	modeVariable = "ORRERY_TEST_USAGE"
	busy         = "busy"
	launcher     = "launcher"
	held         = 64 << 20
)

func TestMain(m *testing.M) {
	switch os.Getenv(modeVariable) {
	case busy:
		memory := make([]byte, held)
		for n := 0; ; n = (n + 1) % len(memory) {
			memory[n]++
		}
	case launcher: // its child does the work
		if child(busy).Run() != nil {
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// child is the test binary in a mode, which ends with its parent.
func child(mode string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = []string{modeVariable + "=" + mode}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

func TestUsageIsSumOfProcesses(t *testing.T) {
	c := child(launcher)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pid := c.Process.Pid
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	server := map[fleet.InstanceID]int{"aaaaaa": pid}
	for name, members := range map[string]func() (map[string][]int, error){
		"found by parent": func() (map[string][]int, error) { return nil, errors.New("there are no control groups") },
		"found by control group": func() (map[string][]int, error) {
			var pids []int
			for _, p := range readTable() {
				if p.pid == pid || p.parent == pid {
					pids = append(pids, p.pid)
				}
			}
			return map[string][]int{"aaaaaa": pids}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			runs := NewRuns(members)
			await.That(t, "memory and processor time are known", func() string {
				u := runs.Measure(time.Now(), server)["aaaaaa"]
				return await.Unless(u.MemoryBytes >= held && u.MemoryBytes < 8*held && u.CPUKnown && u.CPU > 0, "%+v", u)
			})
		})
	}
}

func TestEndedRunHasNoUsage(t *testing.T) {
	c := exec.Command("true")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	runs := NewRuns(func() (map[string][]int, error) { return nil, nil })
	if u, ok := runs.Measure(time.Now(), map[fleet.InstanceID]int{"aaaaaa": c.Process.Pid})["aaaaaa"]; ok {
		t.Errorf("%+v", u)
	}
}

func TestCPUSinceLastSampleOfSameRun(t *testing.T) {
	at := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	one := process{pid: 7, start: 1000 * ticksPerSecond} // 1,000 s after the boot
	before := sample{server: one, ticks: 1000, at: at, cpu: 25, known: true}
	for name, c := range map[string]struct {
		last  sample
		ticks uint64
		after time.Duration
		boot  time.Duration
		want  float64
		known bool
	}{
		"half a core":               {before, 1750, 15 * time.Second, time.Hour, 50, true},
		"idle":                      {before, 1000, 15 * time.Second, time.Hour, 0, true},
		"processes were lost":       {before, 900, 15 * time.Second, time.Hour, 0, false},
		"too soon":                  {before, 1010, time.Second / 2, time.Hour, 25, true},
		"a young run's first":       {sample{}, 1000, 0, 1010 * time.Second, 100, true},
		"a new run":                 {sample{}, 1, 0, 1000 * time.Second, 0, false},
		"an old run's first":        {sample{}, 1000, 0, 2000 * time.Second, 0, false},
		"another run with this pid": {sample{server: process{pid: 7, start: 5}, ticks: 900, at: at}, 1000, time.Minute, 1010 * time.Second, 100, true},
	} {
		got := sample{server: one, ticks: c.ticks, at: at.Add(c.after)}.after(c.last, c.boot)
		if got.cpu != c.want || got.known != c.known {
			t.Errorf("%s: %v, %v; want %v, %v", name, got.cpu, got.known, c.want, c.known)
		}
	}
}

func TestProcessesAreFoundByParentAndSession(t *testing.T) {
	all := table{
		1:  {pid: 1},
		10: {pid: 10, parent: 1, session: 1},   // the agent
		20: {pid: 20, parent: 10, session: 20}, // a wrapper
		21: {pid: 21, parent: 20, session: 20}, // its server
		22: {pid: 22, parent: 21, session: 22}, // a child in a session of its own
		23: {pid: 23, parent: 22, session: 22},
		24: {pid: 24, parent: 1, session: 20},  // in the background, in the run's session
		30: {pid: 30, parent: 10, session: 30}, // another wrapper
		31: {pid: 31, parent: 30, session: 30},
		40: {pid: 40, parent: 10, session: 1}, // a server in a session that is not its own
		50: {pid: 50},                         // one whose parent and session are outside
	}
	for pid, want := range map[int][]int{21: {20, 21, 22, 23, 24}, 31: {30, 31}, 40: {40}, 50: {50}} {
		var got []int
		for _, p := range all.runOf(all[pid]) {
			got = append(got, p.pid)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("server %d: %v, want %v", pid, got, want)
		}
	}
}

const statText = "7 (a) b) S 1 5 6 0 -1 4194560 100 0 0 0 10 20 3 4 20 0 1 0 100000 1000 25 18446744073709551615"

func TestProcessNameMayContainAnything(t *testing.T) {
	p, ok := parseProcess(7, []byte(statText))
	want := process{pid: 7, parent: 1, session: 6, start: 100000, ticks: 37, resident: 25 * int64(os.Getpagesize())}
	if !ok || p != want {
		t.Errorf("%+v, %v; want %+v", p, ok, want)
	}
}

func FuzzProcess(f *testing.F) {
	f.Add([]byte(statText))
	f.Add([]byte("7 (x) S"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, ok := parseProcess(7, text)
		if ok && (p.pid != 7 || p.resident < 0) {
			t.Errorf("%q: %+v", text, p)
		}
	})
}
