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
	// tapRoom is how many live events wait for one client before they are dropped.
	tapRoom = 64
)

// Log remembers the latest events, in order and without gaps, and wakes whoever
// waits for more. Feed it by subscribing Hear to a view before the view runs.
type Log struct {
	size int

	// mu guards what follows.
	mu sync.RWMutex
	// ring is only appended to, and cut at its beginning: parts of it are handed out as they are.
	ring []Event
	// from and head bound what the ring holds: every event after revision from up to
	// revision head. head is 0 before the first list.
	from, head int64
	// evicted is true when from was moved by the ring's size, false when by a relist.
	evicted bool
	// past counts how often etcd went back in time: revisions of another past say nothing.
	past   int
	totals *Totals
	wake   chan struct{} // closed and renewed when head moves
	taps   map[chan Event]struct{}
}

// NewLog makes a log of size events; 0 means DefaultRing.
func NewLog(size int) *Log {
	if size == 0 {
		size = DefaultRing
	}
	return &Log{size: size, wake: make(chan struct{}), taps: map[chan Event]struct{}{}}
}

// Hear takes in what a view saw. A relist starts the log anew: what happened
// between two lists is known to etcd at best.
func (l *Log) Hear(b view.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.Relisted {
		l.ring, l.from, l.evicted = nil, b.After.Rev, false
		l.totals = TotalsOf(b.After)
		if b.Rewound {
			l.past++
		}
	} else {
		l.append(Translate(b, l.totals, time.Now()))
	}
	l.head = b.After.Rev
	close(l.wake)
	l.wake = make(chan struct{})
}

// append stores the events with an id and hands out the live ones.
func (l *Log) append(events []Event) {
	for _, e := range events {
		if e.Live() && len(l.taps) == 0 {
			continue
		}
		e.frame = e.framed()
		if !e.Live() {
			l.ring = append(l.ring, e)
			continue
		}
		for tap := range l.taps {
			select {
			case tap <- e:
			default: // live events are for those who keep up
			}
		}
	}
	if len(l.ring) > l.size {
		l.evict(len(l.ring) - l.size)
	}
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

// page is what a Log has after a position.
type page struct {
	// events are the next ones, at most as many as asked for. They are the log's own.
	events []Event
	// behind is how many more the log holds.
	behind int
	// older is true when the position lies before what the log holds; evicted then
	// says that it was held once.
	older, evicted bool
	// from and head are the revisions between which the log knows everything.
	from, head int64
	// past is the one that the log is of; a position of another is nowhere in it.
	past int
	// more is closed when the log has grown.
	more <-chan struct{}
}

// after reads up to limit events after a position.
func (l *Log) after(p Position, limit int) page {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := page{from: l.from, head: l.head, past: l.past, more: l.wake}
	if p.Compare(Position{Rev: l.from}) < 0 {
		out.older, out.evicted = true, l.evicted
		return out
	}
	i, _ := slices.BinarySearchFunc(l.ring, p, func(e Event, p Position) int {
		if e.At.Compare(p) <= 0 {
			return -1
		}
		return 1
	})
	rest := l.ring[i:]
	out.events = slices.Clip(rest[:min(limit, len(rest))])
	out.behind = len(rest) - len(out.events)
	return out
}

// tap receives live events until drop is called.
func (l *Log) tap() (events <-chan Event, drop func()) {
	ch := make(chan Event, tapRoom)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taps[ch] = struct{}{}
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.taps, ch)
	}
}

// present is the past that the log is of now; see page.
func (l *Log) present() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.past
}

// Head is the revision up to which the log is complete, 0 before the first list.
func (l *Log) Head() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.head
}
