package events

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestInstancesLeaveRoomForPeopleAndAllForEachOther(t *testing.T) {
	r := newRoom(16)
	var leave []func()
	enter := func(c fleet.Credential, want bool) {
		t.Helper()
		if has := r.has(holderOf(c)); has != want {
			t.Fatalf("room for %+v with %d open: %v, want %v", c, r.taken(), has, want)
		}
		out, ok := r.enter(holderOf(c))
		if ok != want {
			t.Fatalf("a stream of %+v with %d open: %v, want %v", c, r.taken(), ok, want)
		}
		if ok {
			leave = append(leave, out)
		}
	}
	instance := func(n int) fleet.Credential {
		return fleet.Credential{Instance: fleet.InstanceID(fmt.Sprint("i", n))}
	}
	for range maxOfInstance {
		enter(instance(0), true)
	}
	enter(instance(0), false)
	for n := range 8 {
		enter(instance(1+n), true)
	}
	enter(instance(9), false) // the last quarter is for people
	for range 4 {
		enter(fleet.Credential{User: "admin"}, true)
	}
	enter(fleet.Credential{User: "vera"}, false)
	for _, out := range leave {
		out()
	}
	if r.taken() != 0 || r.instances != 0 || len(r.of) != 0 {
		t.Errorf("after all have gone: %+v", r)
	}
	for range 8 {
		enter(fleet.Credential{User: "admin"}, true)
	}
	enter(fleet.Credential{User: "admin"}, false) // the other half is for others
	enter(fleet.Credential{User: "vera"}, true)
	enter(instance(0), true)
}
