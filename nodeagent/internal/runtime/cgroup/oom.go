package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// pollInterval is how often the kernel's counters are read during a run. A kill before the
	// last reading is unrelated to the end of the run.
	pollInterval = 10 * time.Second
	// minAge is the age from which a reading counts as before the end of a run.
	minAge = time.Second
)

// Killed reports whether the kernel has just killed a process of the run for memory, and the
// limit that was reached in MiB; 0 if the host or a parent group ran out of memory. Call it before
// Release, and before the tree's group is killed.
func (l *Limiter) Killed(instance string) (oom bool, limitMiB int) {
	return l.killed(instance, time.Now())
}

func (l *Limiter) killed(instance string, now time.Time) (oom bool, limitMiB int) {
	p, ok := l.memory()
	if !ok {
		return false, 0
	}
	dir := l.group(p, instance)
	c := p.counts(dir)
	if c.kills == 0 || c.kills == l.seen.before(instance, now) {
		return false, 0
	}
	if !c.limited {
		return true, 0
	}
	file := "memory.max"
	if p.dir != "" {
		file = "memory.limit_in_bytes"
	}
	return true, limitOf(content(filepath.Join(dir, file)))
}

// Watch records the kernel's kill counters of all runs until ctx ends, so that Killed can tell a
// recent kill from an earlier one.
func (l *Limiter) Watch(ctx context.Context) {
	p, ok := l.memory()
	for ok && pause.For(ctx, pollInterval) {
		l.record(p, time.Now())
	}
}

// record reads the counters of all groups with living processes.
func (l *Limiter) record(p part, now time.Time) {
	parent := p.dir
	if parent == "" {
		parent = l.tree.Dir()
	}
	groups, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, g := range groups {
		if g.IsDir() {
			dir := filepath.Join(parent, g.Name())
			l.seen.record(g.Name(), now, func() int { return p.kills(dir) }, func() bool {
				pids, err := processesBelow(dir)
				return err == nil && len(pids) > 0
			})
		}
	}
}

// memory returns the part that enforces memory limits, if there is one.
func (l *Limiter) memory() (p part, ok bool) {
	if l == nil {
		return part{}, false
	}
	for _, p := range l.parts {
		if p.limit == fleet.LimitMemory {
			return p, true
		}
	}
	return part{}, false
}

// counts are the kernel's counters of a group.
type counts struct {
	// kills is the number of processes killed for memory, for any reason.
	kills int
	// limited is true if the group reached its own limit.
	limited bool
}

// counts reads the kernel's counters of a group.
func (p part) counts(dir string) counts {
	read := func(file string) string { return content(filepath.Join(dir, file)) }
	if p.dir == "" {
		return countsOf2(read("memory.events"))
	}
	return countsOf1(read)
}

// kills reads only the kill counter, because it is read often.
func (p part) kills(dir string) int {
	file := "memory.events"
	if p.dir != "" {
		file = "memory.oom_control"
	}
	return count(content(filepath.Join(dir, file)), "oom_kill")
}

// countsOf2 parses version 2's memory.events. oom_kill counts kills for any reason; only oom
// counts this group's limit.
func countsOf2(events string) counts {
	return counts{kills: count(events, "oom_kill"), limited: count(events, "oom") > 0}
}

// limitMargin is how far below its limit, in bytes, a group may be when the kernel refuses
// memory, because several pages are requested at once.
const limitMargin = 1 << 20

// countsOf1 parses version 1's files. failcnt also counts when memory could be reclaimed, and some
// kernels do not count for memory and swap together. So it also compares the maximum usage.
func countsOf1(read func(file string) string) counts {
	c := counts{kills: count(read("memory.oom_control"), "oom_kill")}
	for _, what := range []string{"memory.", "memory.memsw."} {
		most, limit := number(read(what+"max_usage_in_bytes")), number(read(what+"limit_in_bytes"))
		c.limited = c.limited || number(read(what+"failcnt")) > 0 || limit > 0 && most > limit-limitMargin
	}
	return c
}

// count returns a number from lines "name number"; 0 if it is missing.
func count(text, name string) int {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			return number(f[1])
		}
	}
	return 0
}

// number parses a number; 0 if it is invalid.
func number(text string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(text))
	return n
}

// unlimited is the value from which version 1 means no limit, in bytes.
const unlimited = 1 << 50

// limitOf parses a limit in bytes and returns MiB; 0 for no limit.
func limitOf(text string) (mib int) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n >= unlimited {
		return 0
	}
	return int(n >> 20)
}

// content reads a file; empty if it is missing.
func content(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// killHistory holds the last known kill counters of runs with kills. The zero value is ready.
type killHistory struct {
	mu   sync.Mutex
	seen map[string]killCount
}

// killCount is a kill counter, when it was first read, and its previous value.
type killCount struct {
	at              time.Time
	kills, previous int
}

// record updates the counter of a group that has living processes.
func (s *killHistory) record(instance string, now time.Time, kills func() int, living func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, n := s.seen[instance], kills()
	if n == last.kills || !living() {
		return
	}
	if s.seen == nil {
		s.seen = map[string]killCount{}
	}
	s.seen[instance] = killCount{at: now, kills: n, previous: last.kills}
}

// before returns the kill counter as it was minAge ago.
func (s *killHistory) before(instance string, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.seen[instance]
	if now.Sub(last.at) < minAge {
		return last.previous
	}
	return last.kills
}

// forget removes a group that was removed or recreated.
func (s *killHistory) forget(instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, instance)
}
