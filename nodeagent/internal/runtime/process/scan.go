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

// scanner scans the processes of the host. Callers that wait while a scan is running share the next
// one, because many runs may end at once.
type scanner struct {
	// running is held during a scan, and guards ages.
	running sync.Mutex
	// ages holds what earlier scans found, by pid. A process that is older than a run then costs
	// a stat of its directory and no read of its file: see BenchmarkScan.
	ages map[int]known

	mu sync.Mutex
	// next is a scan that has not started; nil if no caller waits.
	next *scan
}

// scan is one scan for processes that started at since or later, in the unit of
// runtime.ProcessID. scanner.mu guards since until the scan starts. all and err are written before
// done is closed.
type scan struct {
	since uint64
	done  chan struct{}
	all   []*liveProcess
	err   error
}

// known is when a process started. inode and created identify the process, because the kernel
// creates the directory /proc/<pid> again for another process with the same pid.
type known struct {
	inode   uint64
	created unix.Timespec
	start   uint64
}

// liveProcess is a living process found by a scan.
type liveProcess struct {
	runtime.ProcessID
	session int

	reading         sync.Once
	instance, agent string
	err             error
}

// mark returns what the function mark returns for the process. It reads the environment once.
func (p *liveProcess) mark() (instance, agent string, err error) {
	p.reading.Do(func() { p.instance, p.agent, p.err = mark(p.PID) })
	return p.instance, p.agent, p.err
}

// scan returns the living processes that started at since or later. It returns Unavailable if it
// cannot examine one.
func (c *scanner) scan(since uint64) ([]*liveProcess, error) {
	c.mu.Lock()
	l := c.next
	first := l == nil
	if first {
		l = &scan{since: since, done: make(chan struct{})}
		c.next = l
	}
	l.since = min(l.since, since)
	c.mu.Unlock()
	if first {
		c.running.Lock()
		c.mu.Lock()
		c.next = nil // the scan may miss processes of later callers
		c.mu.Unlock()
		l.all, l.err = c.run(l.since)
		c.running.Unlock()
		close(l.done)
	}
	<-l.done
	return l.all, l.err
}

// run runs a scan for all callers that share it. c.running is held.
func (c *scanner) run(since uint64) (all []*liveProcess, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "process.scan", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "process.scan", err)
	}
	ages := make(map[int]known, len(names))
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
			return nil, errs.WrapAs(errs.Unavailable, "process.scan", &fs.PathError{Op: "stat", Path: "/proc/" + name, Err: err})
		}
		if k, ok := c.ages[pid]; ok && k.inode == at.Ino && k.created == at.Ctim && k.start < since {
			ages[pid] = k
			continue
		}
		s, ok, err := readStat(pid)
		switch {
		case errors.Is(err, fs.ErrPermission), err == nil && !ok:
			continue
		case err != nil:
			return nil, err
		}
		ages[pid] = known{at.Ino, at.Ctim, s.start}
		if s.start >= since && !s.dead() {
			all = append(all, &liveProcess{ProcessID: runtime.ProcessID{PID: pid, Start: s.start}, session: s.session})
		}
	}
	c.ages = ages
	return all, nil
}

// marked returns the processes of an instance's run: those in its session, and those with its mark
// in their environment. since is the start of the run's first process, 0 if unknown; older
// processes do not belong to the run. Another agent on this host may have an instance with the
// same id: its processes name that agent or are in its control groups. It returns Unavailable if it
// cannot examine a process.
func (c *scanner) marked(owner, instance string, session int, since uint64) (ids []runtime.ProcessID, err error) {
	all, err := c.scan(since)
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
