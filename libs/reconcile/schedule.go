package reconcile

import "time"

// entry is a key that is ready, working or waiting, or whose last reconciliation failed.
type entry[K comparable] struct {
	key K
	// ready: it is in the ring. again: it was added while working. Never both.
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

// schedule is the state of a queue. It is pure: the caller holds the queue's lock and passes the
// time. It reuses entries, so it does not allocate once it has seen its largest number of keys.
type schedule[K comparable] struct {
	entries map[K]*entry[K]
	spare   []*entry[K]
	// ring holds the ready entries in order: count entries starting at head.
	ring        []*entry[K]
	head, count int
	// heap holds the waiting entries ordered by due time.
	heap    []*entry[K]
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
	s.push(e)
	return true
}

// addAt requests a reconciliation at a time. It reports whether the earliest due time changed.
func (s *schedule[K]) addAt(key K, due time.Time) bool {
	e := s.entry(key)
	switch {
	case e.slot < 0:
		e.due, e.slot = due, len(s.heap)
		s.heap = append(s.heap, e)
		s.up(e.slot)
	case due.Before(e.due):
		e.due = due
		s.up(e.slot)
	default:
		return false
	}
	return e.slot == 0
}

// expire makes all due entries ready and returns their number.
func (s *schedule[K]) expire(now time.Time) (woken int) {
	for len(s.heap) > 0 && !s.heap[0].due.After(now) {
		e := s.heap[0]
		s.removeFirst()
		if s.wake(e, now) {
			woken++
		}
	}
	return woken
}

// next returns the earliest due time.
func (s *schedule[K]) next() (due time.Time, ok bool) {
	if len(s.heap) == 0 {
		return time.Time{}, false
	}
	return s.heap[0].due, true
}

// take returns the entry that has been ready longest, or nil.
func (s *schedule[K]) take() *entry[K] {
	if s.count == 0 {
		return nil
	}
	e := s.ring[s.head]
	s.ring[s.head] = nil
	s.head = (s.head + 1) % len(s.ring)
	s.count--
	e.ready, e.working = false, true
	s.working++
	return e
}

// done takes an entry back. It reports whether the entry became ready again. An entry without any
// remaining state is kept for reuse.
func (s *schedule[K]) done(e *entry[K], now time.Time) bool {
	e.working = false
	s.working--
	if e.again {
		e.again = false
		return s.wake(e, now)
	}
	if e.slot < 0 && e.failures == 0 {
		delete(s.entries, e.key)
		var none K
		e.key = none // release what the key points to
		s.spare = append(s.spare, e)
	}
	return false
}

func (s *schedule[K]) entry(key K) *entry[K] {
	if e, ok := s.entries[key]; ok {
		return e
	}
	e := s.fresh()
	e.key = key
	s.entries[key] = e
	return e
}

func (s *schedule[K]) fresh() *entry[K] {
	if n := len(s.spare); n > 0 {
		e := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return e
	}
	return &entry[K]{slot: -1}
}

// push appends to the ring and doubles it when it is full.
func (s *schedule[K]) push(e *entry[K]) {
	if s.count == len(s.ring) {
		bigger := make([]*entry[K], max(16, 2*len(s.ring)))
		n := copy(bigger, s.ring[s.head:])
		copy(bigger[n:], s.ring[:s.head])
		s.ring, s.head = bigger, 0
	}
	s.ring[(s.head+s.count)%len(s.ring)] = e
	s.count++
}

// up moves an entry towards the top of the heap.
func (s *schedule[K]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.heap[i].due.Before(s.heap[parent].due) {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s *schedule[K]) removeFirst() {
	last := len(s.heap) - 1
	s.swap(0, last)
	s.heap[last].slot = -1
	s.heap[last] = nil
	s.heap = s.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && s.heap[child+1].due.Before(s.heap[child].due) {
			child++
		}
		if child >= last || !s.heap[child].due.Before(s.heap[i].due) {
			return
		}
		s.swap(i, child)
		i = child
	}
}

func (s *schedule[K]) swap(i, j int) {
	s.heap[i], s.heap[j] = s.heap[j], s.heap[i]
	s.heap[i].slot, s.heap[j].slot = i, j
}
