package places

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestInstancesLeaveRoomForPeopleAndAllForEachOther(t *testing.T) {
	p := New(16)
	var leave []func()
	enter := func(c fleet.Credential, want bool) {
		t.Helper()
		if has := p.Has(HolderOf(c)); has != want {
			t.Fatalf("room for %+v with %d open: %v, want %v", c, p.Taken(), has, want)
		}
		out, ok := p.Take(HolderOf(c))
		if ok != want {
			t.Fatalf("a stream of %+v with %d open: %v, want %v", c, p.Taken(), ok, want)
		}
		if ok {
			leave = append(leave, out)
		}
	}
	instance := func(n int) fleet.Credential {
		return fleet.Credential{Instance: fleet.InstanceID(fmt.Sprint("i", n))}
	}
	for range MaxOfInstance {
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
	if p.Taken() != 0 || p.instances != 0 || len(p.of) != 0 {
		t.Errorf("after all have gone: %+v", p)
	}
	for range 8 {
		enter(fleet.Credential{User: "admin"}, true)
	}
	enter(fleet.Credential{User: "admin"}, false) // the other half is for others
	enter(fleet.Credential{User: "vera"}, true)
	enter(instance(0), true)
}
