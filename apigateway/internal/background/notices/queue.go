package notices

import "github.com/orreryhq/orrery/apigateway/internal/stream/events"

// maxQueue bounds the events that wait for one notice.
const maxQueue = 1000

// queue has the events that are to be sent, in order, and the position up to which the others are done.
type queue struct {
	waiting []events.Event
	// read is the position up to which all events are in the queue or done.
	read events.Position
	// done is the position up to which all events are done.
	done events.Position
}

// add appends events that were read up to a position. It returns how many it dropped: the oldest, except the
// first one, which is being sent.
func (q *queue) add(all []events.Event, upTo events.Position) (dropped int) {
	for _, e := range all {
		if len(q.waiting) >= maxQueue {
			q.waiting = append(q.waiting[:1], q.waiting[2:]...)
			dropped++
		}
		q.waiting = append(q.waiting, e)
	}
	q.read = upTo
	if len(q.waiting) == 0 {
		q.done = upTo
	}
	return dropped
}

// first returns the event to send.
func (q *queue) first() (e events.Event, ok bool) {
	if len(q.waiting) == 0 {
		return e, false
	}
	return q.waiting[0], true
}

// pop removes the first event, which is done.
func (q *queue) pop() {
	q.done = q.waiting[0].At
	q.waiting = q.waiting[1:]
	if len(q.waiting) == 0 {
		q.waiting, q.done = nil, q.read
	}
}
