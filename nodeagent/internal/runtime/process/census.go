package process

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// census looks at the processes of the host. Those who ask while a look is under way share
// the next one, since many runs end at once.
type census struct {
	// looking is held during a look, and guards ages.
	looking sync.Mutex
	// ages remembers processes between looks, by pid. To find that one is older than a run
	// takes a stat of its directory in place of a read of its file: see BenchmarkCensus.
	ages map[int]age

	mu sync.Mutex
	// next is a look that has not begun; nil when nobody waits for one.
	next *look
}

// look is one look at the processes that started at since or later, in the unit of
// runtime.ProcessID. since is guarded by census.mu until the look begins. all and err are
// written before done is closed.
type look struct {
	since uint64
	done  chan struct{}
	all   []*seen
	err   error
}

// age is when a process started. inode and made identify the process: the kernel makes
// the directory /proc/<pid> anew for another process with the same pid.
type age struct {
	inode uint64
	made  unix.Timespec
	start uint64
}

// seen is a living process as one look found it.
type seen struct {
	runtime.ProcessID
	session int

	reading         sync.Once
	instance, agent string
	err             error
}

// mark returns what the function mark returns for the process. It reads the environment once.
func (s *seen) mark() (instance, agent string, err error) {
	s.reading.Do(func() { s.instance, s.agent, s.err = mark(s.PID) })
	return s.instance, s.agent, s.err
}

// take returns the processes that live now and started at since or later. Unavailable when
// one cannot be looked at.
func (c *census) take(since uint64) ([]*seen, error) {
	c.mu.Lock()
	l := c.next
	first := l == nil
	if first {
		l = &look{since: since, done: make(chan struct{})}
		c.next = l
	}
	l.since = min(l.since, since)
	c.mu.Unlock()
	if first {
		c.looking.Lock()
		c.mu.Lock()
		c.next = nil // who asks from now on may know of a process that this look misses
		c.mu.Unlock()
		l.all, l.err = c.look(l.since)
		c.looking.Unlock()
		close(l.done)
	}
	<-l.done
	return l.all, l.err
}

// look is take for all who share a look. c.looking is held.
func (c *census) look(since uint64) (all []*seen, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, errs.As(errs.Unavailable, "process.look", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "process.look", err)
	}
	ages := make(map[int]age, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		var at unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), name, &at, 0); err != nil {
			if isGone(err) || errors.Is(err, fs.ErrPermission) {
				continue
			}
			return nil, errs.As(errs.Unavailable, "process.look", &fs.PathError{Op: "stat", Path: "/proc/" + name, Err: err})
		}
		if known, ok := c.ages[pid]; ok && known.inode == at.Ino && known.made == at.Ctim && known.start < since {
			ages[pid] = known
			continue
		}
		s, ok, err := readStat(pid)
		switch {
		case errors.Is(err, fs.ErrPermission), err == nil && !ok:
			continue
		case err != nil:
			return nil, err
		}
		ages[pid] = age{at.Ino, at.Ctim, s.start}
		if s.start >= since && !s.dead() {
			all = append(all, &seen{ProcessID: runtime.ProcessID{PID: pid, Start: s.start}, session: s.session})
		}
	}
	c.ages = ages
	return all, nil
}

// marked returns the processes of an instance's run: those in its session, and those that
// carry its mark in their environment, wherever they forked to. since is the start of the
// run's first process, 0 when it is not known: what is older does not belong to the run.
// Another agent on this host may have an instance of the same id: its processes name that agent,
// or run in its control groups. Unavailable when a process cannot be looked at.
func (c *census) marked(owner, instance string, session int, since uint64) (ids []runtime.ProcessID, err error) {
	all, err := c.take(since)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Start < since {
			continue
		}
		if inSession := session > 1 && p.session == session; !inSession {
			named, agent, err := p.mark()
			if err != nil {
				return nil, err
			}
			if named != instance || ownedByAnother(owner, agent, p.PID) {
				continue
			}
		}
		ids = append(ids, p.ProcessID)
	}
	return ids, nil
}
