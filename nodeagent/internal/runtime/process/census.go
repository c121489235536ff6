package process

import (
	"sync"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// census looks at every process of the host. Those who ask while a look is under way share
// the next one: many runs end at once, and a look takes milliseconds for 100 processes.
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
	all  []seen
	err  error
}

// seen is a living process as one look found it.
type seen struct {
	runtime.ProcessID
	session int
	// instance and agent are whom its environment names; empty where it names none.
	instance, agent string
}

// take is every process that lives when it is called. Unavailable when they cannot all be
// looked at.
func (c *census) take() ([]seen, error) {
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

func lookAtAll() ([]seen, error) {
	processes, err := living()
	if err != nil {
		return nil, err
	}
	all := make([]seen, 0, len(processes))
	for pid, s := range processes {
		instance, agent, err := mark(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, seen{runtime.ProcessID{PID: pid, Start: s.start}, s.session, instance, agent})
	}
	return all, nil
}

// marked are the processes that belong to an instance: those in its session, and
// those that carry its mark in their environment, wherever they forked to. The same
// id may be known to another agent on this host: what names that one, or runs in its
// control groups, is its. Unavailable when they cannot all be looked at.
func (c *census) marked(owner, instance string, session int) (ids []runtime.ProcessID, err error) {
	all, err := c.take()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		inSession := session > 1 && p.session == session
		if inSession || p.instance == instance && !ownedByAnother(owner, p.agent, p.PID) {
			ids = append(ids, p.ProcessID)
		}
	}
	return ids, nil
}
