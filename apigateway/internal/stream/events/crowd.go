package events

import (
	"slices"
	"sync"
	"time"
)

const (
	// perCall is the time budgeted for waking one client and its write. It limits the writes to all
	// clients of a log to 40,000 a second, however many events there are: a client writes all
	// pending events at once.
	perCall = 25 * time.Microsecond
	// roundLimit is the longest wait for a round to finish, unless its budget is larger.
	roundLimit = 50 * time.Millisecond
	// fewOut is how many clients of a round, plus an eighth of it, may still be writing when the next
	// round starts. A slow client therefore does not delay the others.
	fewOut = 8
)

// crowd schedules the wake-ups of a log's clients in rounds. A round wakes the clients that wait and
// have new events. The next round starts after the budget of the last one has passed and most of
// its clients have written. So one client gets events at once, a thousand clients get a burst about
// forty times a second, and on an overloaded machine no client is woken twice before the others
// were woken once. An event after a quiet period is never delayed.
type crowd struct {
	mu  sync.Mutex
	all map[*ear]struct{}
	// State of the last round: the log's position, the round's number, how many clients were called,
	// and how many of them have not come back (out).
	at          mark
	number      int64
	called, out int
	// next is the earliest time of the next round; latest is when it starts regardless of out.
	next, latest time.Time
	// due is true if there may be events for a round. timer runs while due is true; it is nil before
	// the first one.
	due   bool
	timer *time.Timer
}

// ear is one client of a crowd.
type ear struct {
	// hears is the part of the client's filter that never changes for an event.
	hears func(Event) bool
	// called has a value after a wake-up, until the client receives it.
	called chan struct{}

	// Guarded by the crowd's lock: whether the client waits, the round it was called in and has not come
	// back from, and the position up to which the log has nothing for it.
	waiting bool
	round   int64
	upTo    mark
}

func (e *ear) hearsOf(came news) bool {
	return slices.ContainsFunc(came.events, e.hears) || slices.ContainsFunc(came.live, e.hears)
}

// join adds a client, which does not wait yet. leave removes it.
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

// await lets a client wait that has everything up to a mark. It returns false if a round was called
// since, because there may be more events.
func (l *Log) await(e *ear, known mark) bool {
	c := &l.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	l.back(e) // first, because it may start a round
	e.waiting = c.at.step <= known.step
	return e.waiting
}

// back records that a client has written or left. The caller holds the lock.
func (l *Log) back(e *ear) {
	c := &l.crowd
	was := e.round
	e.round = 0
	if was != 0 && was == c.number {
		c.out--
		l.tryCall()
	}
}

// rouse ends a client's wait. It returns the mark up to which the log has nothing more for the client;
// the zero mark if unknown.
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

// call starts a round, now or as soon as allowed.
func (l *Log) call() {
	l.crowd.mu.Lock()
	defer l.crowd.mu.Unlock()
	l.crowd.due = true
	l.tryCall()
}

// again starts a postponed round.
func (l *Log) again() {
	l.crowd.mu.Lock()
	defer l.crowd.mu.Unlock()
	l.tryCall()
}

// tryCall starts the due round or schedules another attempt. The caller holds the lock.
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

// call wakes the waiting clients that have new events.
func (c *crowd) call(came news) {
	if !came.lost && len(came.events)+len(came.live) == 0 {
		return // most revisions have no events
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
			default: // already called
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
