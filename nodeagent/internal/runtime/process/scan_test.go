package process

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// sleeper starts a process with an instance's mark, and returns its pid and start time.
func sleeper(t testing.TB, instance string) (int, uint64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.Env = append(os.Environ(), markName+"="+instance)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s, ok, err := readStat(cmd.Process.Pid)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return cmd.Process.Pid, s.start
}

func TestScanFindsAProcessRepeatedly(t *testing.T) {
	pid, start := sleeper(t, "scanner-1")
	var c scanner
	for _, since := range []uint64{0, start, start + 1, start, 0, start + 1} {
		ids, err := c.marked("agent", "scanner-1", 0, since)
		if err != nil {
			t.Fatal(err)
		}
		found := len(ids) == 1 && ids[0].PID == pid && ids[0].Start == start
		if since <= start && !found || since > start && len(ids) > 0 {
			t.Errorf("those that started at %d or later are %v, the process started at %d", since, ids, start)
		}
	}
}

func TestScanForgetsEndedProcesses(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var c scanner
	look := func() map[int]known {
		t.Helper()
		if _, err := c.scan(1 << 62); err != nil {
			t.Fatal(err)
		}
		return c.ages
	}
	if _, ok := look()[cmd.Process.Pid]; !ok {
		t.Errorf("process %d is not among %v", cmd.Process.Pid, c.ages)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, ok := look()[cmd.Process.Pid]; ok {
		t.Errorf("process %d is remembered after its end", cmd.Process.Pid)
	}
	for pid, k := range look() {
		s, ok, err := readStat(pid)
		if err != nil {
			t.Fatal(err)
		}
		if ok && s.start != k.start {
			t.Errorf("process %d started at %d, remembered is %d", pid, s.start, k.start)
		}
	}
}

func TestConcurrentCallersShareAScan(t *testing.T) {
	pid, start := sleeper(t, "scanner-2")
	var c scanner
	c.running.Lock() // makes all of them wait for one scan
	found := make(chan bool, 20)
	for n := range cap(found) {
		since := start + uint64(n%2)
		go func() {
			ids, err := c.marked("agent", "scanner-2", 0, since)
			has := slices.ContainsFunc(ids, func(id runtime.ProcessID) bool { return id.PID == pid })
			found <- err == nil && has == (since <= start)
		}()
	}
	c.running.Unlock()
	for range cap(found) {
		if !<-found {
			t.Error("the result does not match the request")
		}
	}
}

// The kernel reuses the pid of an ended process.
func TestScanRecognizesReusedPids(t *testing.T) {
	const last = "/proc/sys/kernel/ns_last_pid"
	var c scanner
	for range 1000 { // another process of the host may get the pid
		old := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := old.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.scan(0); err != nil { // it remembers the old process
			t.Fatal(err)
		}
		_ = old.Process.Kill()
		_ = old.Wait()
		await.That(t, "the clock tick after that of the old one", func() string {
			_, start := sleeper(t, "scanner-4")
			return await.Unless(start > c.ages[old.Process.Pid].start, "still %d", start)
		})
		if err := os.WriteFile(last, []byte(strconv.Itoa(old.Process.Pid-1)), 0o600); err != nil {
			t.Logf("only root can choose the next pid: %v", err)
			return
		}
		pid, start := sleeper(t, "scanner-5")
		if pid != old.Process.Pid {
			continue
		}
		ids, err := c.marked("agent", "scanner-5", 0, start)
		if err != nil || len(ids) != 1 || ids[0].PID != pid || ids[0].Start != start {
			t.Errorf("found %v, %v, want process %d that started at %d", ids, err, pid, start)
		}
		return
	}
	t.Error("no pid was reused")
}

func BenchmarkScan(b *testing.B) {
	_, start := sleeper(b, "scanner-3")
	var c scanner
	for b.Loop() {
		if _, err := c.marked("agent", "scanner-3", 0, start); err != nil {
			b.Fatal(err)
		}
	}
}
