package events

import (
	"slices"
	"sync"
	"time"
)

// BenchmarkAudience and the figure sse_1000x100_p99_ms show what rounds gain.
const (
	// wakeCost is the time budgeted for waking one client and its write. It limits the writes to all
	// clients of a log to 40,000 a second, however many events there are: a client writes all
	// pending events at once.
	wakeCost = 25 * time.Microsecond
	// roundLimit is the longest wait for a round to finish, unless its budget is larger.
	roundLimit = 50 * time.Millisecond
	// maxWriting is how many clients of a round, plus an eighth of it, may still be writing when the next
	// round starts. A slow client therefore does not delay the others.
	maxWriting = 8
)

// broadcaster wakes the subscribers of a log in rounds. A round wakes the subscribers that wait and
// have new events. The next round starts after the budget of the last one has passed and most of
// its subscribers have written. So one client gets events at once, a thousand clients get a burst about
// forty times a second, and on an overloaded machine no client is woken twice before the others
// were woken once. An event after a quiet period is never delayed.
type broadcaster struct {
	mu  sync.Mutex
	all map[*subscriber]struct{}
	// State of the last round: the log's position, the round's number, how many subscribers were woken,
	// and how many of them still write.
	at             mark
	number         int64
	woken, writing int
	// next is the earliest time of the next round; latest is when it starts regardless of writing.
	next, latest time.Time
	// due is true if there may be events for a round. timer runs while due is true; it is nil before
	// the first one.
	due   bool
	timer *time.Timer
}

// subscriber is one client of a log.
type subscriber struct {
	// mayWant is the part of the client's filter that never changes for an event.
	mayWant func(Event) bool
	// wake has a value after a wake-up, until the client receives it.
	wake chan struct{}

	// Guarded by the broadcaster's lock: whether the client waits, the round in which it was woken and still
	// writes, and the position up to which the log has nothing for it.
	waiting bool
	round   int64
	upTo    mark
}

func (s *subscriber) wantsAny(of additions) bool {
	return slices.ContainsFunc(of.events, s.mayWant) || slices.ContainsFunc(of.live, s.mayWant)
}

// subscribe adds a client, which does not wait yet. leave removes it.
func (l *Log) subscribe(mayWant func(Event) bool) (s *subscriber, leave func()) {
	s = &subscriber{mayWant: mayWant, wake: make(chan struct{}, 1)}
	b := &l.broadcaster
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[s] = struct{}{}
	return s, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, s)
		l.finish(s)
	}
}

func (b *broadcaster) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all) == 0
}

// await lets a client wait that has everything up to a mark. It returns false if a round has started
// since, because there may be more events.
func (l *Log) await(s *subscriber, known mark) bool {
	b := &l.broadcaster
	b.mu.Lock()
	defer b.mu.Unlock()
	l.finish(s) // first, because it may start a round
	s.waiting = b.at.step <= known.step
	return s.waiting
}

// finish records that a client has written or left. The caller holds the lock.
func (l *Log) finish(s *subscriber) {
	b := &l.broadcaster
	was := s.round
	s.round = 0
	if was != 0 && was == b.number {
		b.writing--
		l.tryRound()
	}
}

// endWait ends a client's wait. It returns the mark up to which the log has nothing more for the client;
// the zero mark if unknown.
func (b *broadcaster) endWait(s *subscriber) mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.waiting = false
	select {
	case <-s.wake:
	default:
	}
	upTo := s.upTo
	s.upTo = mark{}
	return upTo
}

// notify starts a round, now or as soon as allowed.
func (l *Log) notify() {
	l.broadcaster.mu.Lock()
	defer l.broadcaster.mu.Unlock()
	l.broadcaster.due = true
	l.tryRound()
}

// retryRound starts a postponed round.
func (l *Log) retryRound() {
	l.broadcaster.mu.Lock()
	defer l.broadcaster.mu.Unlock()
	l.tryRound()
}

// tryRound starts the due round or schedules another attempt. The caller holds the lock.
func (l *Log) tryRound() {
	b := &l.broadcaster
	if !b.due {
		return
	}
	may := b.next
	if b.writing > maxWriting+b.woken/8 {
		may = b.latest
	}
	wait := time.Until(may)
	switch {
	case wait <= 0:
		b.due = false
		b.round(l.since(b.at))
	case b.timer == nil:
		b.timer = time.AfterFunc(wait, l.retryRound)
	default:
		b.timer.Reset(wait)
	}
}

// round wakes the waiting clients that may want the additions.
func (b *broadcaster) round(added additions) {
	if !added.lost && len(added.events)+len(added.live) == 0 {
		return // most revisions have no events
	}
	b.at = added.mark
	b.number++
	b.woken = 0
	for s := range b.all {
		switch {
		case !s.waiting:
		case added.lost || s.wantsAny(added):
			s.waiting, s.round = false, b.number
			select {
			case s.wake <- struct{}{}:
			default: // woken already
			}
			b.woken++
		default:
			s.upTo = added.mark
		}
	}
	b.writing = b.woken
	now, cost := time.Now(), time.Duration(b.woken)*wakeCost
	b.next, b.latest = now.Add(cost), now.Add(max(cost, roundLimit))
}
