package places

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestInstancesLeaveRoomForPeopleAndAllForEachOther(t *testing.T) {
	p := New(16, 0)
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

func TestOneUserHasAShareOfThePlacesAndHalfAtMost(t *testing.T) {
	for _, c := range []struct{ size, ofUser, want int }{
		{2000, 0, DefaultOfUser}, {2000, 7, 7}, {2000, 1500, 1000}, {64, 0, 32}, {1, 0, 1},
	} {
		p := New(c.size, c.ofUser)
		n := 0
		for {
			if _, ok := p.Take(Holder{User: "admin"}); !ok {
				break
			}
			n++
		}
		if n != c.want {
			t.Errorf("one user takes %d of %d with a share of %d, want %d", n, c.size, c.ofUser, c.want)
		}
		if c.size > 1 && !p.Has(Holder{User: "vera"}) {
			t.Errorf("with a share of %d of %d, another user has no place", c.ofUser, c.size)
		}
	}
}
