package notices

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
)

func TestAFullQueueDropsTheOldestThatIsNotBeingSent(t *testing.T) {
	var q queue
	all := make([]events.Event, maxQueue+2)
	for n := range all {
		all[n].At = events.Position{Rev: int64(n + 1)}
	}
	if n := q.add(all, events.Position{Rev: 5000}); n != 2 || len(q.waiting) != maxQueue {
		t.Fatalf("%d were dropped, %d wait", n, len(q.waiting))
	}
	if first, second := q.waiting[0].At.Rev, q.waiting[1].At.Rev; first != 1 || second != 4 {
		t.Errorf("it begins with %d and %d", first, second)
	}
	if q.done != (events.Position{}) {
		t.Errorf("%v counts as done", q.done)
	}
}

// TestWhatIsDoneIsBeforeWhatWaits also checks that nothing is lost without being counted.
func TestWhatIsDoneIsBeforeWhatWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		rev, added, dropped, popped := int64(0), 0, 0, 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if _, ok := q.first(); ok && rapid.Bool().Draw(t, "pop") {
				q.pop()
				popped++
			} else {
				all := make([]events.Event, rapid.IntRange(0, 400).Draw(t, "events"))
				for n := range all {
					rev++
					all[n].At = events.Position{Rev: rev}
				}
				rev += rapid.Int64Range(0, 3).Draw(t, "others")
				dropped += q.add(all, events.Position{Rev: rev})
				added += len(all)
			}
			first, ok := q.first()
			switch {
			case len(q.waiting) > maxQueue, added != dropped+popped+len(q.waiting):
				t.Fatalf("%d added, %d dropped, %d done, %d wait", added, dropped, popped, len(q.waiting))
			case ok && q.done.Compare(first.At) >= 0, !ok && q.done != q.read:
				t.Fatalf("done up to %v, read up to %v, first %v", q.done, q.read, first.At)
			}
		}
	})
}
