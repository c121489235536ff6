package streamlimit

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

func TestInstancesLeaveAQuarterToUsers(t *testing.T) {
	p := New(16, 0)
	var leave []func()
	enter := func(c account.Credential, want bool) {
		t.Helper()
		if has := p.Available(HolderOf(c)); has != want {
			t.Fatalf("room for %+v with %d open: %v, want %v", c, p.InUse(), has, want)
		}
		out, ok := p.Acquire(HolderOf(c))
		if ok != want {
			t.Fatalf("a stream of %+v with %d open: %v, want %v", c, p.InUse(), ok, want)
		}
		if ok {
			leave = append(leave, out)
		}
	}
	instance := func(n int) account.Credential {
		return account.Credential{Instance: fleet.InstanceID(fmt.Sprint("i", n))}
	}
	for range MaxPerInstance {
		enter(instance(0), true)
	}
	enter(instance(0), false)
	for n := range 8 {
		enter(instance(1+n), true)
	}
	enter(instance(9), false) // the last quarter is for users
	for range 4 {
		enter(account.Credential{User: "admin"}, true)
	}
	enter(account.Credential{User: "vera"}, false)
	for _, out := range leave {
		out()
	}
	if p.InUse() != 0 || p.instances != 0 || len(p.of) != 0 {
		t.Errorf("after all have gone: %+v", p)
	}
	for range 8 {
		enter(account.Credential{User: "admin"}, true)
	}
	enter(account.Credential{User: "admin"}, false) // the other half is for other users
	enter(account.Credential{User: "vera"}, true)
	enter(instance(0), true)
}

func TestUserLimitIsAtMostHalf(t *testing.T) {
	for _, c := range []struct{ size, perUser, want int }{
		{2000, 0, DefaultPerUser}, {2000, 7, 7}, {2000, 1500, 1000}, {64, 0, 32}, {1, 0, 1},
	} {
		p := New(c.size, c.perUser)
		n := 0
		for {
			if _, ok := p.Acquire(Holder{User: "admin"}); !ok {
				break
			}
			n++
		}
		if n != c.want {
			t.Errorf("one user opened %d of %d streams with a limit of %d, want %d", n, c.size, c.perUser, c.want)
		}
		if c.size > 1 && !p.Available(Holder{User: "vera"}) {
			t.Errorf("with a limit of %d of %d, another user cannot open a stream", c.perUser, c.size)
		}
	}
}
