package events

import (
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/store/view"
)

// Sizes of a Log, in events.
const (
	// DefaultRing is how many events a Log remembers.
	DefaultRing = 8192
	// liveRing is how many live events it keeps for those who are about to be told, and
	// liveBytes how much of them: two of the largest batches of other gateways, since a round
	// may have to wait while these come.
	liveRing  = 8192
	liveBytes = 8 << 20
)

// Log remembers the latest events, in order and without gaps, and wakes whoever
// waits for more. Feed it by subscribing Hear to a view before the view runs.
type Log struct {
	size  int
	crowd crowd
	// totals are Hear's alone, which is called from one goroutine.
	totals *Totals

	// mu guards what follows. Nothing is encoded, and nobody is woken, while it is held.
	mu sync.RWMutex
	// ring is only appended to, and cut at its beginning: parts of it are handed out as they are.
	ring []Event
	// from and head bound what the ring holds: every event after revision from up to
	// revision head. head is 0 before the first list.
	from, head int64
	// evicted is true when from was moved by the ring's size, false when by a relist.
	evicted bool
	// past counts how often etcd went back in time: revisions of another past say nothing.
	past int
	// live are the latest live events, of size liveSize; handed out as ring is. told counts
	// all there ever were, the last of live being number told.
	live     []Event
	liveSize int
	told     int64
	// step counts what was taken in.
	step int64
}

// NewLog makes a log of size events; 0 means DefaultRing.
func NewLog(size int) *Log {
	if size == 0 {
		size = DefaultRing
	}
	return &Log{size: size, crowd: crowd{all: map[*ear]struct{}{}}}
}

// Hear takes in what a view saw. A relist starts the log anew: what happened
// between two lists is known to etcd at best.
func (l *Log) Hear(b view.Batch) {
	if b.Relisted {
		l.totals = TotalsOf(b.After)
		l.begin(b)
	} else {
		l.add(b.After.Rev, l.ready(Translate(b, l.totals, time.Now())))
	}
	l.call()
}

// Tell hands an event to the clients of this log that keep up, as one that is live only.
func (l *Log) Tell(e Event) {
	e.At = Position{}
	if ready := l.ready([]Event{e}); len(ready) > 0 {
		l.add(0, ready)
		l.call()
	}
}

// ready are events as they enter the log: encoded once for all clients. Live ones are for
// who is there.
func (l *Log) ready(events []Event) []Event {
	if l.crowd.empty() {
		events = slices.DeleteFunc(events, Event.Live)
	}
	for n := range events {
		events[n].frame = events[n].framed()
	}
	return events
}

func (l *Log) begin(b view.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring, l.from, l.head, l.evicted = nil, b.After.Rev, b.After.Rev, false
	if b.Rewound {
		l.past++
	}
	l.step++
}

// add takes in events, and the revision up to which they are complete; 0 when nothing more
// is known of that than before.
func (l *Log) add(head int64, events []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if e.Live() {
			e.behind = l.last()
			l.live = append(l.live, e)
			l.liveSize += len(e.frame)
			l.told++
		} else {
			l.ring = append(l.ring, e)
		}
	}
	if head != 0 {
		l.head = head
	}
	if len(l.ring) > l.size {
		l.evict(len(l.ring) - l.size)
	}
	for len(l.live) > liveRing || l.liveSize > liveBytes { // live events are for those who keep up
		l.liveSize -= len(l.live[0].frame)
		l.live = l.live[1:]
	}
	l.step++
}

// last is the position of the latest event that has one.
func (l *Log) last() Position {
	if len(l.ring) == 0 {
		return Position{Rev: l.head}
	}
	return l.ring[len(l.ring)-1].At
}

// evict drops the oldest events, whole revisions of them.
func (l *Log) evict(n int) {
	last := l.ring[n-1].At.Rev
	for n < len(l.ring) && l.ring[n].At.Rev == last {
		n++
	}
	l.ring = l.ring[n:] // what is dropped goes when append moves the rest
	l.from, l.evicted = last, true
}

// widen puts older events before the ring's, when they reach up to it and there is room.
func (l *Log) widen(from, to int64, older []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from != to || len(l.ring)+len(older) > l.size {
		return
	}
	l.ring = append(slices.Clip(older), l.ring...)
	l.from = from
}

// cursor is what a client was told: everything up to a position, and so many live events.
type cursor struct {
	pos  Position
	told int64
}

// page is what a Log has after a cursor.
type page struct {
	// events are the next ones, at most as many as asked for. They are the log's own.
	events []Event
	// behind is how many more the log holds.
	behind int
	// live are the live ones, once no more than these events is left; lost is how many there
	// were before them that the log does not have any more.
	live []Event
	lost int
	// older is true when the position lies before what the log holds; evicted then
	// says that it was held once.
	older, evicted bool
	// from is the revision after which the log knows everything.
	from int64
	mark
}

// mark is how far a log has come.
type mark struct {
	// head is the revision up to which it knows everything, past the one that is of; a
	// position of another is nowhere in it.
	head int64
	past int
	// told counts its live events, step all it took in.
	told, step int64
}

func (l *Log) mark() mark { return mark{head: l.head, past: l.past, told: l.told, step: l.step} }

// after reads up to limit events after a cursor.
func (l *Log) after(at cursor, limit int) page {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := page{from: l.from, mark: l.mark()}
	if at.pos.Compare(Position{Rev: l.from}) < 0 {
		out.older, out.evicted = true, l.evicted
		return out
	}
	rest := l.kept(at.pos)
	out.events = slices.Clip(rest[:min(limit, len(rest))])
	if out.behind = len(rest) - len(out.events); out.behind == 0 {
		out.live = l.heard(at.told)
		out.lost = int(max(l.told-at.told, 0)) - len(out.live)
	}
	return out
}

// kept are the events after a position that is not before the ring.
func (l *Log) kept(p Position) []Event {
	i, _ := slices.BinarySearchFunc(l.ring, p, func(e Event, p Position) int {
		if e.At.Compare(p) <= 0 {
			return -1
		}
		return 1
	})
	return l.ring[i:]
}

// heard are the live events after the first so many, as far as there still are any.
func (l *Log) heard(told int64) []Event {
	return slices.Clip(l.live[len(l.live)-int(min(max(l.told-told, 0), int64(len(l.live)))):])
}

// news are what a log took in after a mark.
type news struct {
	events, live []Event
	// lost is true when some of it is not known any more.
	lost bool
	mark
}

// since reads what came after a mark.
func (l *Log) since(m mark) news {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := news{mark: l.mark(), lost: m.past != l.past || m.head < l.from, live: l.heard(m.told)}
	if !out.lost {
		out.events = l.kept(Position{Rev: m.head})
	}
	return out
}

// now is how far the log has come.
func (l *Log) now() mark {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mark()
}

// Head is the revision up to which the log is complete, 0 before the first list.
func (l *Log) Head() int64 { return l.now().head }
