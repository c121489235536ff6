package events

import (
	"slices"
	"sync"
	"time"
)

const (
	// perCall is the room for waking one client, which then writes: what that costs, with
	// some to spare. It bounds the writes to all clients of a log to 40,000 a second, however
	// many events there are: each takes along what came meanwhile.
	perCall = 25 * time.Microsecond
	// roundLimit is how long a round is waited for that does not come to its end, if it may not
	// cost more.
	roundLimit = 50 * time.Millisecond
	// fewOut is how many clients of a round nobody waits for, and with them an eighth of it:
	// a slow one costs the others nothing.
	fewOut = 8
)

// crowd are the clients of a log. They are called in rounds: whoever waits, and has something
// to hear of, at a time. The next round is not before the last one has cost what it may, nor
// before most of those called have written: so one client hears at once, a thousand hear of a
// burst some forty times a second, and on a machine that is too slow for that nobody is called
// twice while others were not heard of once. What comes after a silence is never held back.
type crowd struct {
	mu  sync.Mutex
	all map[*ear]struct{}
	// at is how far the log had come when the last round was called, of which number is the
	// number, called how many were, and out how many of these have not come back.
	at          mark
	number      int64
	called, out int
	// next is when the next round may be, latest when it may be whoever is out.
	next, latest time.Time
	// due is true when there may be something for a round. timer is set while it is; nil
	// before there was any.
	due   bool
	timer *time.Timer
}

// ear is one client in a crowd.
type ear struct {
	// hears is whether the client may want an event, by what never changes of that.
	hears func(Event) bool
	// called has a value after a call, until it was heard.
	called chan struct{}

	// What follows is guarded by the crowd: whether the client waits to be called, in which
	// round it was and has not come back from, and how far the log has come without anything
	// for it.
	waiting bool
	round   int64
	upTo    mark
}

func (e *ear) hearsOf(came news) bool {
	return slices.ContainsFunc(came.events, e.hears) || slices.ContainsFunc(came.live, e.hears)
}

// join adds a client, who does not wait yet, until leave is called.
func (l *Log) join(hears func(Event) bool) (e *ear, leave func()) {
	e = &ear{hears: hears, called: make(chan struct{}, 1)}
	c := &l.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[e] = struct{}{}
	return e, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, e)
		l.back(e)
	}
}

func (c *crowd) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) == 0
}

// await has a client wait that knows all the log had at a mark. It is false when a round
// has been called since: then there may be more.
func (l *Log) await(e *ear, known mark) bool {
	c := &l.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	l.back(e) // this may call a round, so it comes first
	e.waiting = c.at.step <= known.step
	return e.waiting
}

// back takes note that a client has written, or has gone. The crowd is locked.
func (l *Log) back(e *ear) {
	c := &l.crowd
	was := e.round
	e.round = 0
	if was != 0 && was == c.number {
		c.out--
		l.tryCall()
	}
}

// rouse ends the wait of a client, whatever ended it. Up to the mark there is nothing for it
// but what it knew before; the zero mark when nobody looked.
func (c *crowd) rouse(e *ear) mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.waiting = false
	select {
	case <-e.called:
	default:
	}
	upTo := e.upTo
	e.upTo = mark{}
	return upTo
}

// call calls a round, now or when it may be.
func (l *Log) call() {
	l.crowd.mu.Lock()
	defer l.crowd.mu.Unlock()
	l.crowd.due = true
	l.tryCall()
}

// again is call for a round that was put off.
func (l *Log) again() {
	l.crowd.mu.Lock()
	defer l.crowd.mu.Unlock()
	l.tryCall()
}

// tryCall calls the round that is due, or sees to it that it is tried again in time. The
// crowd is locked.
func (l *Log) tryCall() {
	c := &l.crowd
	if !c.due {
		return
	}
	may := c.next
	if c.out > fewOut+c.called/8 {
		may = c.latest
	}
	wait := time.Until(may)
	switch {
	case wait <= 0:
		c.due = false
		c.call(l.since(c.at))
	case c.timer == nil:
		c.timer = time.AfterFunc(wait, l.again)
	default:
		c.timer.Reset(wait)
	}
}

// call wakes who waits and has something to hear of.
func (c *crowd) call(came news) {
	if !came.lost && len(came.events)+len(came.live) == 0 {
		return // most revisions are nothing to clients
	}
	c.at = came.mark
	c.number++
	c.called = 0
	for e := range c.all {
		switch {
		case !e.waiting:
		case came.lost || e.hearsOf(came):
			e.waiting, e.round = false, c.number
			select {
			case e.called <- struct{}{}:
			default: // it was called already
			}
			c.called++
		default:
			e.upTo = came.mark
		}
	}
	c.out = c.called
	now, cost := time.Now(), time.Duration(c.called)*perCall
	c.next, c.latest = now.Add(cost), now.Add(max(cost, roundLimit))
}
