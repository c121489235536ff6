package events

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestInstancesLeaveRoomForPeopleAndForEachOther(t *testing.T) {
	r := newRoom(16)
	var leave []func()
	enter := func(i fleet.InstanceID, want bool) {
		t.Helper()
		out, ok := r.enter(i)
		if ok != want {
			t.Fatalf("a stream of %q with %d open: %v, want %v", i, r.taken(), ok, want)
		}
		if ok {
			leave = append(leave, out)
		}
	}
	for range maxOfOne {
		enter("greedy", true)
	}
	enter("greedy", false)
	for n := range 8 {
		enter(fleet.InstanceID(fmt.Sprint("i", n)), true)
	}
	enter("i9", false) // the last quarter is for people
	for range 4 {
		enter("", true)
	}
	enter("", false)
	for _, out := range leave {
		out()
	}
	if r.taken() != 0 || r.instances != 0 || len(r.of) != 0 {
		t.Errorf("after all have gone: %+v", r)
	}
	enter("greedy", true)
}
