package reconcile

import (
	"container/heap"
	"time"
)

// entry is a key that is ready, working or waiting, or whose last reconciliation failed.
type entry[K comparable] struct {
	key K
	// ready: it waits for a worker. again: it was added while working. Never both.
	ready, working, again bool
	// failures is the number of consecutive failures.
	failures int
	// since is when it became ready.
	since time.Time
	// due is when it becomes ready by itself. slot is its index in the heap, -1 if it is not
	// waiting.
	due  time.Time
	slot int
}

// waiting is a heap of the waiting entries, the earliest due first.
type waiting[K comparable] []*entry[K]

func (w waiting[K]) Len() int           { return len(w) }
func (w waiting[K]) Less(i, j int) bool { return w[i].due.Before(w[j].due) }

func (w waiting[K]) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].slot, w[j].slot = i, j
}

// Push implements heap.Interface.
func (w *waiting[K]) Push(x any) {
	e := x.(*entry[K])
	e.slot = len(*w)
	*w = append(*w, e)
}

// Pop implements heap.Interface.
func (w *waiting[K]) Pop() any {
	last := len(*w) - 1
	e := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	e.slot = -1
	return e
}

// schedule is the state of a queue. It is pure: the caller holds the queue's lock and passes the
// time.
type schedule[K comparable] struct {
	entries map[K]*entry[K]
	// ready are the entries that wait for a worker, the one that has been ready longest first.
	ready   []*entry[K]
	waiting waiting[K]
	working int
}

func newSchedule[K comparable]() *schedule[K] {
	return &schedule[K]{entries: make(map[K]*entry[K])}
}

// add requests a reconciliation now. It reports whether an entry became ready.
func (s *schedule[K]) add(key K, now time.Time) bool {
	return s.wake(s.entry(key), now)
}

func (s *schedule[K]) wake(e *entry[K], now time.Time) bool {
	if e.working {
		e.again = true
		return false
	}
	if e.ready {
		return false
	}
	e.ready, e.since = true, now
	s.ready = append(s.ready, e)
	return true
}

// addAt requests a reconciliation at a time. It reports whether the earliest due time changed.
func (s *schedule[K]) addAt(key K, due time.Time) bool {
	e := s.entry(key)
	switch {
	case e.slot < 0:
		e.due = due
		heap.Push(&s.waiting, e)
	case due.Before(e.due):
		e.due = due
		heap.Fix(&s.waiting, e.slot)
	default:
		return false
	}
	return e.slot == 0
}

// expire makes all due entries ready and returns their number.
func (s *schedule[K]) expire(now time.Time) (woken int) {
	for len(s.waiting) > 0 && !s.waiting[0].due.After(now) {
		e := heap.Pop(&s.waiting).(*entry[K])
		if s.wake(e, now) {
			woken++
		}
	}
	return woken
}

// next returns the earliest due time.
func (s *schedule[K]) next() (due time.Time, ok bool) {
	if len(s.waiting) == 0 {
		return time.Time{}, false
	}
	return s.waiting[0].due, true
}

// take returns the entry that has been ready longest, or nil.
func (s *schedule[K]) take() *entry[K] {
	if len(s.ready) == 0 {
		return nil
	}
	e := s.ready[0]
	s.ready[0] = nil
	s.ready = s.ready[1:]
	e.ready, e.working = false, true
	s.working++
	return e
}

// done takes an entry back. It reports whether the entry became ready again. An entry without any
// remaining state is dropped.
func (s *schedule[K]) done(e *entry[K], now time.Time) bool {
	e.working = false
	s.working--
	if e.again {
		e.again = false
		return s.wake(e, now)
	}
	if e.slot < 0 && e.failures == 0 {
		delete(s.entries, e.key)
	}
	return false
}

func (s *schedule[K]) entry(key K) *entry[K] {
	if e, ok := s.entries[key]; ok {
		return e
	}
	e := &entry[K]{key: key, slot: -1}
	s.entries[key] = e
	return e
}
