// Package pending orders the instances that need a placement, and groups those that do not
// fit so that one decision answers for all of a kind.
package pending

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Instance is an instance that needs a placement.
type Instance struct {
	ID    fleet.InstanceID
	Group fleet.GroupName
	// Rank is that of its group when it was last queued.
	Rank Rank
	// Age is the revision at which the placement was requested: the lowest waits longest.
	Age     int64
	Ordinal int
	// Index is its position in its queue, -1 while it is in none.
	Index int
	// Class is the class it is parked in, nil while it is not parked.
	Class *Class
	// From is the class that it was taken out of to be tried for all parked instances of that class.
	From *Class
	// Races counts lost comparisons in a row.
	Races int

	// NoteRevision is the revision of its last pending note, which the view may not have yet,
	// and NoteVerdict the verdict in that note.
	NoteRevision int64
	NoteVerdict  *place.Unfit
	// NoteDue means that a note shall be sent, NoteSent that one is being committed, and
	// NoteUnknown that the outcome of a commit is unknown.
	NoteDue, NoteSent, NoteUnknown bool
}

// Rank orders the groups whose instances are placed: those of higher priority first, and among them
// those of higher startup weight.
type Rank struct{ Priority, Weight int }

// RankOf returns a group's rank.
func RankOf(s *fleet.GroupSpec) Rank { return Rank{s.Priority, s.StartupWeight} }

// Compare is negative when r comes before o.
func (r Rank) Compare(o Rank) int {
	return cmp.Or(cmp.Compare(o.Priority, r.Priority), cmp.Compare(o.Weight, r.Weight))
}

// Before orders the queue: the highest rank first, then the longest wait.
func (w *Instance) Before(o *Instance) bool {
	switch {
	case w.Rank != o.Rank:
		return w.Rank.Compare(o.Rank) < 0
	case w.Age != o.Age:
		return w.Age < o.Age
	case w.Ordinal != o.Ordinal:
		return w.Ordinal < o.Ordinal
	}
	return w.ID < o.ID
}

// Queue is a priority queue. Each instance knows its index, so Remove takes O(log n).
type Queue []*Instance

// Len, Less, Swap, Push and Pop implement heap.Interface. Use Add, Remove and Next instead.

func (q Queue) Len() int           { return len(q) }
func (q Queue) Less(i, j int) bool { return q[i].Before(q[j]) }

func (q Queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].Index, q[j].Index = i, j
}

func (q *Queue) Push(x any) {
	w := x.(*Instance)
	w.Index = len(*q)
	*q = append(*q, w)
}

func (q *Queue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q, w.Index = (*q)[:last], -1
	return w
}

// Add queues an instance, unless it is in a queue.
func (q *Queue) Add(w *Instance) {
	if w.Index < 0 {
		heap.Push(q, w)
	}
}

// Remove takes an instance out of the queue that it is in.
func (q *Queue) Remove(w *Instance) {
	if w.Index >= 0 {
		heap.Remove(q, w.Index)
	}
}

// Next takes the first instance out of the queue, nil if it is empty.
func (q *Queue) Next() *Instance {
	if len(*q) == 0 {
		return nil
	}
	return heap.Pop(q).(*Instance)
}

// ClassKey is equal for instances that fit on the same nodes.
type ClassKey struct {
	Plan   string
	Pinned fleet.NodeID
	// Alone makes a class of one instance: one that resources are kept free for, or that
	// waits for its data.
	Alone fleet.InstanceID
}

// Class holds the instances of one kind that do not fit, with their common verdict. When
// resources may have become free, the scheduler tries one of them, and the next ones only
// while they fit. So a release costs one attempt for each class and not for each instance.
type Class struct {
	Key     ClassKey
	Verdict *place.Unfit
	// Revision is that of the state that led to the verdict, and CapacityVersion the counter of
	// changes that may make room.
	Revision        int64
	CapacityVersion uint64
	Parked          Queue
	// Noted is the verdict that all parked instances last got a note about, and NotedAt when.
	Noted   *place.Unfit
	NotedAt time.Time
	// NotesDue is when notes that came too early are due; zero if there are no such notes.
	NotesDue time.Time
}

// Park adds an instance that does not fit.
func (c *Class) Park(w *Instance) {
	w.Class = c
	c.Parked.Add(w)
}

// Leave removes a parked instance.
func (c *Class) Leave(w *Instance) {
	c.Parked.Remove(w)
	w.Class = nil
}

// Next takes out the instance to try first, nil if none is parked.
func (c *Class) Next() *Instance {
	w := c.Parked.Next()
	if w != nil {
		w.Class, w.From = nil, c
	}
	return w
}
