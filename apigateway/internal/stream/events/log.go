package events

import (
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/store/view"
)

// Sizes of a Log, in events.
const (
	// DefaultRing is the default number of stored events.
	DefaultRing = 8192
	// liveRing and liveBytes limit the live events kept for clients that are about to be woken. They
	// fit two of the largest batches of other gateways, since a round may have to wait meanwhile.
	liveRing  = 8192
	liveBytes = 8 << 20
)

// Log stores the latest events, in order and without gaps, and wakes waiting clients. Subscribe its
// OnBatch to a view before the view runs.
type Log struct {
	size        int
	broadcaster broadcaster
	// totals is used by OnBatch only, which is called from one goroutine.
	totals *Totals

	// mu guards the following fields. It is not held while encoding or waking clients.
	mu sync.RWMutex
	// ring is only appended to and cut at its start, because slices of it are handed out.
	ring []Event
	// from and head bound the ring: it has every event after revision from up to revision head. head is 0
	// before the first list.
	from, head int64
	// evicted is true if from was moved by the ring's size, false if by a relist.
	evicted bool
	// past counts restores of etcd to an older state: revisions of different pasts cannot be compared.
	past int
	// live has the latest live events, of size liveSize; slices of it are handed out. liveCount is the
	// number of all live events so far.
	live      []Event
	liveSize  int
	liveCount int64
	// step counts the additions to the log.
	step int64
}

// NewLog returns a log for size events; 0 means DefaultRing.
func NewLog(size int) *Log {
	if size == 0 {
		size = DefaultRing
	}
	return &Log{size: size, broadcaster: broadcaster{all: map[*subscriber]struct{}{}}}
}

// OnBatch adds the events of a batch. A relist clears the log, because only etcd can know what
// happened between two lists.
func (l *Log) OnBatch(b view.Batch) {
	if b.Relisted {
		l.totals = TotalsOf(b.After)
		l.begin(b)
	} else {
		l.add(b.After.Rev, l.ready(Translate(b, l.totals, time.Now())))
	}
	l.notify()
}

// Publish sends a live event to the clients of this log that keep up.
func (l *Log) Publish(e Event) {
	e.At = Position{}
	if ready := l.ready([]Event{e}); len(ready) > 0 {
		l.add(0, ready)
		l.notify()
	}
}

// ready encodes events once for all clients.
func (l *Log) ready(events []Event) []Event {
	if l.broadcaster.empty() {
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

// add appends events and sets the revision up to which they are complete, unless it is 0.
func (l *Log) add(head int64, events []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if e.Live() {
			e.behind = l.last()
			l.live = append(l.live, e)
			l.liveSize += len(e.frame)
			l.liveCount++
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
	for len(l.live) > liveRing || l.liveSize > liveBytes { // clients that fall behind lose live events
		l.liveSize -= len(l.live[0].frame)
		l.live = l.live[1:]
	}
	l.step++
}

// last returns the position of the latest event that has one.
func (l *Log) last() Position {
	if len(l.ring) == 0 {
		return Position{Rev: l.head}
	}
	return l.ring[len(l.ring)-1].At
}

// evict drops the n oldest events, and the rest of their last revision.
func (l *Log) evict(n int) {
	last := l.ring[n-1].At.Rev
	for n < len(l.ring) && l.ring[n].At.Rev == last {
		n++
	}
	l.ring = l.ring[n:] // append later frees the dropped events
	l.from, l.evicted = last, true
}

// prepend adds older events if they reach up to the ring and there is space.
func (l *Log) prepend(from, to int64, older []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from != to || len(l.ring)+len(older) > l.size {
		return
	}
	l.ring = append(slices.Clip(older), l.ring...)
	l.from = from
}

// cursor is a client's progress: a position and a number of live events.
type cursor struct {
	pos       Position
	liveCount int64
}

// page is a part of the log after a cursor.
type page struct {
	// events are the next events, up to the requested number. They belong to the log.
	events []Event
	// behind is the number of further events in the log.
	behind int
	// live has the live events if there are no further events. lost is the number of live events before
	// them that the log has already dropped.
	live []Event
	lost int
	// older is true if the position lies before the log's first event; evicted if the log once had it.
	older, evicted bool
	// from is the revision after which the log is complete.
	from int64
	mark
}

// mark is a log's progress.
type mark struct {
	// head is the revision up to which the log is complete, within the history past.
	head int64
	past int
	// liveCount counts the live events, step all additions.
	liveCount, step int64
}

func (l *Log) mark() mark {
	return mark{head: l.head, past: l.past, liveCount: l.liveCount, step: l.step}
}

// after returns up to limit events after a cursor.
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
		out.live = l.liveAfter(at.liveCount)
		out.lost = int(max(l.liveCount-at.liveCount, 0)) - len(out.live)
	}
	return out
}

// kept returns the events after a position within the ring.
func (l *Log) kept(p Position) []Event {
	i, _ := slices.BinarySearchFunc(l.ring, p, func(e Event, p Position) int {
		if e.At.Compare(p) <= 0 {
			return -1
		}
		return 1
	})
	return l.ring[i:]
}

// liveAfter returns the stored live events after the first n.
func (l *Log) liveAfter(n int64) []Event {
	return slices.Clip(l.live[len(l.live)-int(min(max(l.liveCount-n, 0), int64(len(l.live)))):])
}

// additions is what was added to a log after a mark.
type additions struct {
	events, live []Event
	// lost is true if some of it was already dropped.
	lost bool
	mark
}

// since returns what was added after a mark.
func (l *Log) since(m mark) additions {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := additions{mark: l.mark(), lost: m.past != l.past || m.head < l.from, live: l.liveAfter(m.liveCount)}
	if !out.lost {
		out.events = l.kept(Position{Rev: m.head})
	}
	return out
}

// now returns the log's progress.
func (l *Log) now() mark {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mark()
}

// Head returns the revision up to which the log is complete, 0 before the first list.
func (l *Log) Head() int64 { return l.now().head }
