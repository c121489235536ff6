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
	// lookEvery is how often the kernel's counts are looked at while everything goes on: a
	// process that was killed for memory longer ago has nothing to do with the end of a run.
	lookEvery = 10 * time.Second
	// lookBefore is how old a look must be to be one from before the end of a run.
	lookBefore = time.Second
)

// Killed tells whether the kernel has just killed one of a run's processes for memory, and
// the limit in MiB that it had come to; 0 when it had come to none: then the host, or who
// holds more than the run, had none left. Before Release, and before the tree's group is
// killed.
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

// Watch keeps what the kernel has counted of every run's kills until ctx ends, so that a
// later kill is told from an earlier one.
func (l *Limiter) Watch(ctx context.Context) {
	p, ok := l.memory()
	for ok && pause.For(ctx, lookEvery) {
		l.look(p, time.Now())
	}
}

// look looks at the groups of all runs. One that nobody lives in is about to be judged.
func (l *Limiter) look(p part, now time.Time) {
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
			l.seen.look(g.Name(), now, func() int { return p.kills(dir) }, func() bool {
				pids, err := processesBelow(dir)
				return err == nil && len(pids) > 0
			})
		}
	}
}

// memory is the part that holds limits of memory; ok is false when there is none.
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

// counts are what the kernel counts of a group.
type counts struct {
	// kills are its processes that were killed for memory, whoever had none left.
	kills int
	// limited is true when it came to its own limit.
	limited bool
}

// counts reads what the kernel counts of a group.
func (p part) counts(dir string) counts {
	read := func(file string) string { return content(filepath.Join(dir, file)) }
	if p.dir == "" {
		return countsOf2(read("memory.events"))
	}
	return countsOf1(read)
}

// kills are the counts' kills alone, which are looked at often.
func (p part) kills(dir string) int {
	file := "memory.events"
	if p.dir != "" {
		file = "memory.oom_control"
	}
	return count(content(filepath.Join(dir, file)), "oom_kill")
}

// countsOf2 makes sense of version 2's memory.events. Its oom_kill counts kills of any
// kind; only oom is about this group's limit.
func countsOf2(events string) counts {
	return counts{kills: count(events, "oom_kill"), limited: count(events, "oom") > 0}
}

// nearly is how far below its limit a group may have stayed, in bytes, that was refused
// memory at it: several pages are asked for at once.
const nearly = 1 << 20

// countsOf1 makes sense of version 1's files. Of the limit it counts how often it was met,
// also where memory could be taken back then, and on some kernels not even that for memory
// and swap together: there the most it has used tells.
func countsOf1(read func(file string) string) counts {
	c := counts{kills: count(read("memory.oom_control"), "oom_kill")}
	for _, what := range []string{"memory.", "memory.memsw."} {
		most, limit := number(read(what+"max_usage_in_bytes")), number(read(what+"limit_in_bytes"))
		c.limited = c.limited || number(read(what+"failcnt")) > 0 || limit > 0 && most > limit-nearly
	}
	return c
}

// count is a number in a text of "name number" lines; 0 when it is not there.
func count(text, name string) int {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			return number(f[1])
		}
	}
	return 0
}

// number is the number a text is; 0 when it is none.
func number(text string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(text))
	return n
}

// unlimited is more memory than there is; version 1 says so for none.
const unlimited = 1 << 50

// limitOf is a limit in MiB, as a group's file has it in bytes; 0 for none.
func limitOf(text string) (mib int) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n >= unlimited {
		return 0
	}
	return int(n >> 20)
}

// content is what a file says; empty when it is not there.
func content(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// sightings are how many kills were seen in each run's group, where there were any. The
// zero value is ready.
type sightings struct {
	mu   sync.Mutex
	seen map[string]sighting
}

// sighting is when a look at a group first saw so many kills, and how many were seen before.
type sighting struct {
	at              time.Time
	kills, previous int
}

// look takes what is seen now. Nothing of the group changes hands meanwhile.
func (s *sightings) look(instance string, now time.Time, kills func() int, living func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, n := s.seen[instance], kills()
	if n == last.kills || !living() {
		return
	}
	if s.seen == nil {
		s.seen = map[string]sighting{}
	}
	s.seen[instance] = sighting{at: now, kills: n, previous: last.kills}
}

// before is how many kills had been seen a moment ago.
func (s *sightings) before(instance string, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.seen[instance]
	if now.Sub(last.at) < lookBefore {
		return last.previous
	}
	return last.kills
}

// forget forgets a group, which has gone or was made anew.
func (s *sightings) forget(instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, instance)
}
