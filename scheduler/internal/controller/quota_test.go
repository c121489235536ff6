package controller_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
)

func (w *world) quota(q cluster.Quota) {
	w.t.Helper()
	w.commit(store.Create(keys.Quota(q.Name), q))
}

func ofTenant(name string) func(*fleet.GroupSpec) {
	return func(s *fleet.GroupSpec) { s.Labels = map[string]string{"tenant": name} }
}

// TestTwoSchedulersNeverOverspendATenantsQuota has many tenants, each with one group per
// scheduler. The schedulers race for the rest of each quota.
func TestTwoSchedulersNeverOverspendATenantsQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.schedule("b")
	held := w.shards(2)
	const tenants, limit, each = 12, 5, 4
	next := map[string]int{"a": 0, "b": 0}
	groupOf := func(replica, tenant string) *fleet.Group {
		for {
			next[replica]++
			name := fleet.GroupName(fmt.Sprintf("%s-%d", replica, next[replica]))
			if held[fleet.ShardOf(name)].Replica == replica {
				return w.group(name, func(s *fleet.GroupSpec) {
					ofTenant(tenant)(s)
					s.Where.Nodes = []fleet.NodeID{fleet.NodeID("n-" + replica)} // they never meet on a node
				})
			}
		}
	}
	var wanted []*fleet.Group
	for n := range tenants {
		tenant := fmt.Sprintf("t%02d", n)
		w.quota(cluster.Quota{Name: tenant, Selector: map[string]string{"tenant": tenant}, Limit: fleet.Budget{Instances: limit}})
		wanted = append(wanted, groupOf("a", tenant), groupOf("b", tenant))
	}
	ids := w.wantAll(wanted, each)
	for _, id := range ids {
		w.await(id, "waiting", waiting(fleet.ReasonNoNodes))
	}
	var join []store.Write // both start now, limited only by the quotas
	for _, id := range []fleet.NodeID{"n-a", "n-b"} {
		join = append(join,
			store.Create(keys.Node(id), fleet.Node{ID: id, Capacity: fleet.Resources{MemoryMiB: 10_000}, Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}}}),
			store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id}))
	}
	w.commit(join...)
	for _, id := range ids {
		w.await(id, "decided", func(i *fleet.Instance) bool { return placed(i) || waiting(fleet.ReasonQuotaSpent)(i) })
	}
	spent := func() map[string]int {
		count := map[string]int{}
		for _, id := range ids {
			if i, _ := w.view.Snapshot().Instances.Get(id); placed(i) {
				g, _ := w.view.Snapshot().Groups.Get(i.Intent.Group)
				count[g.Spec.Labels["tenant"]]++
			}
		}
		return count
	}
	await.That(t, "every quota spent", func() string { // a place refused to one scheduler may not have gone to the other
		short := ""
		for tenant, n := range spent() {
			if n > limit {
				t.Fatalf("%s has %d of %d", tenant, n, limit)
			}
			short += await.Unless(n == limit, "%s has %d ", tenant, n)
		}
		return short
	})
}

// wantAll creates n instances of each group in few transactions, alternating between the
// groups.
func (w *world) wantAll(groups []*fleet.Group, n int) (ids []fleet.InstanceID) {
	w.t.Helper()
	sp := spawn.New(w.view.Snapshot(), time.Now(), rand.New(rand.NewPCG(3, uint64(n))))
	var births []spawn.Birth
	for range n {
		for _, g := range groups {
			b := sp.Fresh(g, spawn.Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested}, "", nil)
			births, ids = append(births, b), append(ids, b.Intent.ID)
		}
	}
	var last int64
	for _, txn := range sp.Txns(births, nil, nil, w.c.MaxOps()) {
		rev, err := w.c.Commit(w.t.Context(), txn)
		if err != nil {
			w.t.Fatal(err)
		}
		last = rev
	}
	w.sync(last)
	return ids
}

func TestWhoExceedsAQuotaWaitsAndSaysSoUntilItAllowsMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	w.quota(cluster.Quota{Name: "alice", Selector: map[string]string{"tenant": "alice"}, Limit: fleet.Budget{Instances: 1}})
	g := w.group("lobby", ofTenant("alice"))
	first := w.await(w.want(g, 1)[0], "placed", placed)
	second := w.want(g, 1)[0]
	i := w.await(second, "waiting", waiting(fleet.ReasonQuotaSpent))
	if want := "quota alice: 1 of 1 instances are held: raise it, or wait until enough has ended"; i.Pending.Message != want {
		t.Errorf("it says %q, want %q", i.Pending.Message, want)
	}
	w.finish(first)
	w.await(second, "placed", placed)

	third := w.want(g, 1)[0]
	w.await(third, "waiting", waiting(fleet.ReasonQuotaSpent))
	have, _ := w.view.Snapshot().Quotas.Get("alice")
	w.commit(store.Remove(keys.Quota("alice"), have.ModRev))
	w.await(third, "placed", placed)
}

func TestAQuotaBelowWhatIsHeldStopsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	g := w.group("lobby", nil)
	ids := w.want(g, 3)
	for _, id := range ids {
		w.await(id, "placed", placed)
	}
	current, _ := w.view.Snapshot().Groups.Get("lobby")
	lowered := *current
	lowered.Spec.Quota.Instances = 2
	w.commit(store.Replace(keys.Group("lobby"), lowered, current.ModRev))
	i := w.await(w.want(g, 1)[0], "waiting", waiting(fleet.ReasonQuotaSpent))
	if want := "the quota of group lobby: 3 of 2 instances are held: raise it, or wait until enough has ended"; i.Pending.Message != want {
		t.Errorf("it says %q, want %q", i.Pending.Message, want)
	}
	for _, id := range ids {
		if i, _ := w.view.Snapshot().Instances.Get(id); !i.HoldsNode() || i.Intent.Desired != fleet.DesiredRunning {
			t.Errorf("%s was touched: %+v", id, i)
		}
	}
}

func TestWhatIsReservedForAGroupIsLeftForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 100)
	lobby := w.group("lobby", func(s *fleet.GroupSpec) { s.Reserved.MemoryMiB = 50 })
	greedy := w.group("greedy", nil)
	placedOnes := w.decided(w.want(greedy, 8))
	if len(placedOnes) != 5 {
		t.Errorf("%d of 10 MiB each were placed beside a reservation of 50 in 100 MiB", len(placedOnes))
	}
	for _, i := range w.view.Snapshot().Instances.All() {
		if i.Pending != nil && (i.Pending.Reason != fleet.ReasonReserved || !strings.Contains(i.Pending.Message, "50 MiB are reserved for group lobby")) {
			t.Errorf("it says %+v", i.Pending)
		}
	}
	for _, id := range w.want(lobby, 5) {
		w.await(id, "placed", placed)
	}
}

func TestHoweverManyReserveOthersArePlaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	var reserving []store.Write
	for n := range 100 { // a part of a transaction has 64 comparisons
		name := fleet.GroupName(fmt.Sprintf("reserving-%d", n))
		reserving = append(reserving, store.Create(keys.Group(name), fleet.Group{Name: name, Spec: fleet.GroupSpec{Reserved: fleet.Budget{MemoryMiB: 1}}}))
	}
	w.commit(reserving...)
	for _, id := range w.want(w.group("lobby", nil), 3) {
		w.await(id, "placed", placed)
	}
}

func TestAGroupThatTooManyQuotasCountWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	var quotas []store.Write
	for n := range 70 {
		name := fmt.Sprintf("q%02d", n)
		quotas = append(quotas, store.Create(keys.Quota(name), cluster.Quota{
			Name: name, Selector: map[string]string{"tenant": "alice"}, Limit: fleet.Budget{Instances: 100},
		}))
	}
	w.commit(quotas...)
	i := w.await(w.want(w.group("lobby", ofTenant("alice")), 1)[0], "waiting", waiting(fleet.ReasonQuotaSpent))
	if want := "70 quotas count group lobby, at most 32 can be kept at once: give it fewer of their labels"; i.Pending.Message != want {
		t.Errorf("it says %q, want %q", i.Pending.Message, want)
	}
	w.await(w.want(w.group("other", nil), 1)[0], "placed", placed)
}
