package process

import (
	"sync"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// census looks at every process of the host. Those who ask while a look is under way share
// the next one: many runs end at once, and a look reads a file of each process.
type census struct {
	// looking is held during a look.
	looking sync.Mutex

	mu sync.Mutex
	// next is a look that has not begun; nil when nobody waits for one.
	next *look
}

// look is one look. all and err are written before done is closed.
type look struct {
	done chan struct{}
	all  []*seen
	err  error
}

// seen is a living process as one look found it.
type seen struct {
	runtime.ProcessID
	session int

	reading         sync.Once
	instance, agent string
	err             error
}

// mark is whom the environment of the process names, as of mark. It is read once.
func (s *seen) mark() (instance, agent string, err error) {
	s.reading.Do(func() { s.instance, s.agent, s.err = mark(s.PID) })
	return s.instance, s.agent, s.err
}

// take is every process that lives when it is called. Unavailable when they cannot all be
// looked at.
func (c *census) take() ([]*seen, error) {
	c.mu.Lock()
	l := c.next
	first := l == nil
	if first {
		l = &look{done: make(chan struct{})}
		c.next = l
	}
	c.mu.Unlock()
	if first {
		c.looking.Lock()
		c.mu.Lock()
		c.next = nil // who asks from now on may know of a process that this look misses
		c.mu.Unlock()
		l.all, l.err = lookAtAll()
		c.looking.Unlock()
		close(l.done)
	}
	<-l.done
	return l.all, l.err
}

func lookAtAll() ([]*seen, error) {
	processes, err := living()
	if err != nil {
		return nil, err
	}
	all := make([]*seen, 0, len(processes))
	for pid, s := range processes {
		all = append(all, &seen{ProcessID: runtime.ProcessID{PID: pid, Start: s.start}, session: s.session})
	}
	return all, nil
}

// marked returns the processes of an instance's run: those in its session, and those that
// carry its mark in their environment, wherever they forked to. since is the start of the
// run's first process, 0 when it is not known: what is older does not belong to the run,
// and the environment of a process is by far the most expensive thing to read. Another
// agent on this host may have an instance of the same id: its processes name that agent,
// or run in its control groups. Unavailable when a process cannot be looked at.
func (c *census) marked(owner, instance string, session int, since uint64) (ids []runtime.ProcessID, err error) {
	all, err := c.take()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		inSession := session > 1 && p.session == session
		if !inSession {
			if p.Start < since {
				continue
			}
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
