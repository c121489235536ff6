package controller

import (
	"container/heap"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// waiter is an instance that needs a placement.
type waiter struct {
	id    fleet.InstanceID
	group fleet.GroupName
	// priority is its group's, when it was last put in the queue.
	priority int
	// age is the revision at which it was asked for: the lowest waits longest.
	age     int64
	ordinal int
	// at is its place in the queue it is in, -1 while it is in none.
	at int
	// class is the one it is parked in, nil while it is not: then that is its queue.
	class *class
	// from is the one it was taken out of to be looked at for all that are parked there.
	from *class
	// races counts comparisons lost in a row.
	races int
	// noted is the revision of the last note written about it; the view may not have
	// it yet. due is true while one is to be sent, noting while one is under way, unsure
	// once nobody knows whether one was written. told is what the last one said.
	noted               int64
	told                *place.Unfit
	due, noting, unsure bool
}

// before orders the queue: the highest priority first, then who waits longest.
func (w *waiter) before(o *waiter) bool {
	switch {
	case w.priority != o.priority:
		return w.priority > o.priority
	case w.age != o.age:
		return w.age < o.age
	case w.ordinal != o.ordinal:
		return w.ordinal < o.ordinal
	}
	return w.id < o.id
}

// queue is a heap of waiters to be looked at now. Each knows its place, so that
// one that needs nothing any more leaves at once.
type queue []*waiter

// Len, Less, Swap, Push and Pop are for package heap.

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].before(q[j]) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *queue) Push(x any) {
	w := x.(*waiter)
	w.at = len(*q)
	*q = append(*q, w)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q, w.at = (*q)[:last], -1
	return w
}

func (q *queue) add(w *waiter) {
	if w.at < 0 {
		heap.Push(q, w)
	}
}

func (q *queue) remove(w *waiter) {
	if w.at >= 0 {
		heap.Remove(q, w.at)
	}
}

// next takes the first out of the queue, nil when it is empty.
func (q *queue) next() *waiter {
	if len(*q) == 0 {
		return nil
	}
	return heap.Pop(q).(*waiter)
}

// classKey is what instances share of which each fits where another one does.
type classKey struct {
	plan   string
	pinned fleet.NodeID
	// alone is set for one that room is kept for, and for one that waits for its data.
	alone fleet.InstanceID
}

// class holds the instances of a kind that were found unfit, with the verdict they
// share. When something may have made room, one of them is looked at; the others
// follow as long as the one before them fitted. So a release costs a look for each
// kind of instance that waits, and not for each instance.
type class struct {
	key     classKey
	verdict *place.Unfit
	// seen is the revision of the state that the verdict was reached from.
	seen int64
	// room is the state of the room that the verdict was given for.
	room uint64
	// parked are the unfit ones.
	parked queue
	// said is the verdict that all of them were told last, at told.
	said *place.Unfit
	told time.Time
	// refresh is when notes are due that came too soon; zero when none are.
	refresh time.Time
}

// park puts an unfit waiter aside until there may be room.
func (c *class) park(w *waiter) {
	w.class = c
	c.parked.add(w)
}

// leave takes a waiter out.
func (c *class) leave(w *waiter) {
	c.parked.remove(w)
	w.class = nil
}

// next takes out the one to look at first, nil when none is parked.
func (c *class) next() *waiter {
	w := c.parked.next()
	if w != nil {
		w.class, w.from = nil, c
	}
	return w
}
