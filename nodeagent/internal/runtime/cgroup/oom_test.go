package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// version1 returns the files of a version 1 group, as its kernel writes them.
func version1(kills, failcnt, most, swapMost string) func(string) string {
	files := map[string]string{
		"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill " + kills + "\n",
		"memory.failcnt":     failcnt + "\n", "memory.memsw.failcnt": "0\n",
		"memory.max_usage_in_bytes": most + "\n", "memory.limit_in_bytes": "33554432\n",
		"memory.memsw.max_usage_in_bytes": swapMost + "\n", "memory.memsw.limit_in_bytes": "33554432\n",
	}
	return func(name string) string { return files[name] }
}

func TestCountersOfEachVersion(t *testing.T) {
	for _, c := range []struct {
		rule string
		got  counts
		want counts
	}{
		{
			"version 2: a kill at the group's limit",
			countsOf2("low 0\nhigh 812\nmax 1033\noom 2\noom_kill 1\noom_group_kill 0\nsock_throttled 0\n"),
			counts{kills: 1, limited: true},
		},
		{
			"version 2: a kill because the host ran out of memory",
			countsOf2("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\noom_group_kill 0\n"),
			counts{kills: 1},
		},
		{"version 2: a kernel without oom_group_kill", countsOf2("low 0\nhigh 0\nmax 0\noom 1\noom_kill 3\n"), counts{kills: 3, limited: true}},
		{"version 2: memory was reclaimed at the limit", countsOf2("low 0\nhigh 9\nmax 9\noom 0\noom_kill 0\n"), counts{}},
		{"version 1: a kill at the limit", countsOf1(version1("1", "14", "33554432", "20000000")), counts{kills: 1, limited: true}},
		{"version 1: a kill at the limit with swap, which is not counted", countsOf1(version1("1", "0", "20000000", "33550336")), counts{kills: 1, limited: true}},
		{"version 1: a kill because the host ran out of memory", countsOf1(version1("2", "0", "20000000", "21000000")), counts{kills: 2}},
		{"unreadable files", countsOf1(func(string) string { return "" }), countsOf2("")},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.rule, c.got, c.want)
		}
	}
	for text, want := range map[string]int{"67108864\n": 64, "max\n": 0, "9223372036854771712\n": 0, "": 0} {
		if got := limitOf(text); got != want {
			t.Errorf("a limit of %q is %d MiB, want %d", text, got, want)
		}
	}
}

func FuzzCounts(f *testing.F) {
	f.Add("low 0\nhigh 0\nmax 0\noom 1\noom_kill 3\n")
	f.Add("33554432\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c := countsOf2(text); c.limited != (count(text, "oom") > 0) {
			t.Errorf("%+v", c)
		}
		_, _ = countsOf1(func(string) string { return text }), limitOf(text)
	})
}

func TestOnlyRecentKillsExplainTheEnd(t *testing.T) {
	l := NewLimiter("sight-"+strconv.Itoa(os.Getpid()), nil)
	t.Cleanup(l.Close)
	p, ok := l.memory()
	if !needs(t, ok, "memory is not held here: "+l.Offer().Why) {
		return
	}
	const limit = 32 // MiB
	prepare := func() {
		t.Helper()
		if _, err := l.Prepare("aaaaaa", runtime.Limits{MemoryMiB: limit}); err != nil {
			t.Fatal(err)
		}
	}
	prepare()
	t.Cleanup(func() { l.Release(t.Context(), "aaaaaa") })
	dir := l.group(p, "aaaaaa")
	pid := resident(t, dir)
	now := time.Now()
	is := func(rule string, after time.Duration, want bool) {
		t.Helper()
		oom, mib := l.killed("aaaaaa", now.Add(after))
		if oom != want || want && mib != limit {
			t.Errorf("%s: %v, %d MiB", rule, oom, mib)
		}
	}
	l.record(p, now)
	is("no process was killed", 0, false)
	worker := exec.Command("sh", "-c", "echo 0 >"+filepath.Join(dir, "cgroup.procs")+"; head -c 100m /dev/zero | tail >/dev/null")
	_ = worker.Run()
	is("a worker was just killed", pollInterval, true)
	l.record(p, now.Add(pollInterval))
	is("it was a moment ago", pollInterval+minAge/2, true)
	is("it was a while ago", pollInterval+2*minAge, false)
	_ = exec.Command("sh", "-c", "kill -9 "+strconv.Itoa(pid)).Run()
	await.That(t, "an empty group", func() string {
		pids, err := processesBelow(dir)
		return await.Unless(err == nil && len(pids) == 0, "%v: %v", pids, err)
	})
	prepare()
	if !l.Offer().Holds(fleet.LimitMemory) || l.seen.before("aaaaaa", now.Add(time.Hour)) != 0 {
		t.Error("kills of an earlier run count for the next one")
	}
}
