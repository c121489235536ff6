package e2e_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// waitsFor checks that every view of a waiting instance and its explanation give a reason
// and part of its message.
func (p *pair) waitsFor(i cluster.Instance, reason, says string) {
	p.t.Helper()
	for name, see := range views(p.admin) {
		await.That(p.t, reason+" in the "+name, func() string {
			s := see(i.UID)
			return await.Unless(s.Reason == reason && strings.Contains(s.Message, says), "%+v", s)
		})
	}
	if e := explain(p.admin, i.UID).Pending; e == nil || e.Reason != reason || !strings.Contains(e.Message, says) {
		p.t.Errorf("%s is explained by %+v, want %s: %s", i.ID, e, reason, says)
	}
}

// steady checks that the same processes still run.
func (p *pair) steady(group string, before []cluster.Instance) {
	p.t.Helper()
	for _, i := range before {
		if now := p.admin.Instance(i.UID); now.State != "RUNNING" || now.PID != i.PID {
			p.t.Errorf("%s of %s was touched: %+v, before %+v", i.ID, group, now, i)
		}
	}
}

// told returns the message of a group or a quota.
func (p *pair) told(path string) string {
	p.t.Helper()
	var shown struct{ Message string }
	p.admin.Do("GET", path, nil).OK(200, &shown)
	return shown.Message
}

func TestAGroupsQuotaHoldsNewOnesBackAndTouchesNoneThatRun(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	createGroup(t, p.admin, catGroup("team", fields{"minInstances": 3, "quota": fields{"instances": 2}}))
	two := p.admin.AwaitRunning("team", 2)
	third := p.waits("team")
	p.waitsFor(third, "QuotaSpent", "the quota of group team: 2 of 2 instances are held")

	// A quota below the current use is reported, and nothing is stopped.
	p.admin.Do("PATCH", "/api/v1/groups/team", fields{"quota": fields{"instances": 1}}).OK(200)
	p.steady("team", two)
	if said := p.told("/api/v1/groups/team"); !strings.Contains(said, "2 of at most 1 instances") {
		t.Errorf("the group says %q", said)
	}
	p.waitsFor(third, "QuotaSpent", "2 of 1 instances are held")

	p.admin.Do("PATCH", "/api/v1/groups/team", fields{"quota": nil}).OK(200)
	p.admin.AwaitRunning("team", 3)
	p.steady("team", two)
}

func TestATenantsQuotaBoundsItsGroupsTogether(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.admin.Do("PUT", "/api/v1/quotas/acme", `{"selector":{"tenant":"acme"},"limit":{"memoryMb":40}}`).OK(201)
	for _, name := range []string{"red", "blue"} {
		createGroup(t, p.admin, catGroup(name, fields{"labels": fields{"tenant": "acme"}, "memoryMb": 20, "minInstances": 1}))
		p.admin.AwaitRunning(name, 1)
	}
	createGroup(t, p.admin, catGroup("free", fields{"memoryMb": 20, "minInstances": 1}))
	p.admin.AwaitRunning("free", 1)
	p.admin.Do("PATCH", "/api/v1/groups/blue", fields{"minInstances": 2}).OK(200)
	p.waitsFor(p.waits("blue"), "QuotaSpent", "quota acme: 40 of 40 MiB are held: raise it")

	// A quota below the current use is reported, and nothing is stopped.
	running := append(p.admin.Running("red"), p.admin.Running("blue")...)
	p.admin.Do("PUT", "/api/v1/quotas/acme", `{"selector":{"tenant":"acme"},"limit":{"memoryMb":30}}`).OK(200)
	if said := p.told("/api/v1/quotas/acme"); !strings.Contains(said, "40 of at most 30 MiB") {
		t.Errorf("the quota says %q", said)
	}
	p.steady("acme", running)

	// Resources that one group frees are available to the other.
	p.admin.Do("PUT", "/api/v1/quotas/acme", `{"selector":{"tenant":"acme"},"limit":{"memoryMb":40}}`).OK(200)
	p.remove("red")
	p.admin.AwaitRunning("blue", 2)
	p.admin.Do("DELETE", "/api/v1/quotas/acme", nil).OK(204)
	p.admin.Do("PATCH", "/api/v1/groups/blue", fields{"minInstances": 3}).OK(200)
	p.admin.AwaitRunning("blue", 3)
}

func TestWhatIsReservedIsLeftFreeForThoseItIsReservedFor(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	// 1,050 of the 1,100 MiB on two nodes are reserved, which leaves 50 for others.
	createGroup(t, p.admin, catGroup("vip", fields{"memoryMb": 50, "reserved": fields{"memoryMb": 1050}}))
	createGroup(t, p.admin, catGroup("public", fields{"memoryMb": 30, "minInstances": 2}))
	p.admin.AwaitRunning("public", 1)
	p.waitsFor(p.waits("public"), "Reserved", "1050 MiB are reserved for group vip; 1070 MiB are free, 30 are requested")

	// The group may use its reservation, and then less is kept free.
	p.admin.AwaitState(startOne(t, p.admin, "vip"), "RUNNING")
	if e := explain(p.admin, p.waits("public").UID).Pending; !strings.Contains(e.Message, "1000 MiB are reserved for group vip; 1020 MiB are free") {
		t.Errorf("explained as %+v", e)
	}

	p.admin.Do("PATCH", "/api/v1/groups/vip", fields{"reserved": fields{"memoryMb": 900}}).OK(200)
	p.admin.AwaitRunning("public", 2)
}
