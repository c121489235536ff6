package apigateway

import (
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestARevokedNodeIsCordonedAndListedOnEveryGatewayUntilItIsLetAgain(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	alloc, err := store.Get(t.Context(), a.store, keys.Alloc("node-1"))
	before := alloc.ModRev
	if err != nil {
		before = 0
	}
	a.do("POST", "/api/v1/nodes/node-1/revoke-cert?dryRun=true", nil).want(200).is("action", "revoke")
	a.do("GET", "/api/v1/nodes/revoked-certs", nil).want(200).is("nodes", []any{})
	a.do("POST", "/api/v1/nodes/node-1/revoke-cert?ttlDays=2", nil).want(200).is("nodeId", "node-1").is("revoked", true).is("ttlDays", 2)
	if alloc, err := store.Get(t.Context(), a.store, keys.Alloc("node-1")); err != nil || alloc.ModRev <= before {
		t.Errorf("a placement decided before could still be committed: %+v, %v", alloc, err)
	}
	revoked, err := store.Get(t.Context(), a.store, keys.RevokedNode("node-1"))
	if left := time.Until(revoked.Until); err != nil || left < 47*time.Hour || left > 48*time.Hour || revoked.By != "admin" {
		t.Errorf("%+v, %v", revoked, err)
	}
	if _, err := b.view.WaitRev(t.Context(), revoked.ModRev); err != nil {
		t.Fatal(err)
	}
	b.do("GET", "/api/v1/nodes/revoked-certs", nil).want(200).is("revokedCns", []string{"node-1"}).is("nodes.0.by", "admin")
	b.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "CORDONED")
	b.do("POST", "/api/v1/nodes/node-1/revoke-cert", nil).want(200).is("ttlDays", 365)
	b.do("POST", "/api/v1/nodes/node-1/unrevoke-cert", nil).want(200).is("revoked", false)
	b.do("POST", "/api/v1/nodes/node-1/unrevoke-cert", nil).want(200)
	b.do("GET", "/api/v1/nodes/revoked-certs", nil).want(200).is("revokedCns", []string{})
	b.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "CORDONED")
	b.do("GET", "/api/v1/audit?pageSize=3", nil).want(200).is("data.0.action", "node.unrevoke").is("data.1.action", "node.revoke").
		is("data.2.action", "node.revoke").is("data.2.after.cordoned", true).is("data.2.before.cordoned", false)
	b.do("POST", "/api/v1/nodes/node-9/unrevoke-cert", nil).want(404)
	b.do("POST", "/api/v1/nodes/node-9/revoke-cert", nil).want(200) // its host may have a certificate
	b.do("GET", "/api/v1/nodes/node-9", nil).want(404)
	b.do("POST", "/api/v1/nodes/node-9/unrevoke-cert", nil).want(200)
	b.do("POST", "/api/v1/nodes/Node%209/revoke-cert", nil).want(422)
	b.do("POST", "/api/v1/nodes/node-1/revoke-cert?ttlDays=0", nil).want(422).naming("ttlDays")
	b.do("POST", "/api/v1/nodes/node-1/revoke-cert?ttlDays=99999", nil).want(422).naming("ttlDays")
	b.do("POST", "/api/v1/nodes/node-1/revoke-cert?ttlDays=ever", nil).want(400).naming("ttlDays")
	a.user("otto", "OPERATOR").do("POST", "/api/v1/nodes/node-1/revoke-cert", nil).want(403)
}

func TestABarThatIsOverIsNotListedAndGoes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.commit(
		store.Create(keys.RevokedNode("node-1"), cluster.RevokedNode{Node: "node-1", Until: time.Now().Add(-time.Minute)}),
		store.Create(keys.RevokedNode("node-2"), cluster.RevokedNode{Node: "node-2", Until: time.Now().Add(time.Hour)}),
	)
	s.do("GET", "/api/v1/nodes/revoked-certs", nil).want(200).is("revokedCns", []string{"node-2"})
	if err := s.gateway.operate.PruneRevokedNodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.revisionSeen()
	if n := s.view.Snapshot().RevokedNodes.Len(); n != 1 {
		t.Errorf("%d are kept", n)
	}
}

func TestTokensOfInstancesOnARevokedNodeAreNoGoodOnAnyGatewayUntilItIsLetAgain(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.node("node-2", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	one, other := a.inside("lobby", "node-1"), a.inside("lobby", "node-2")
	eventually(t, b.as(one.token), "GET", "/api/plugin/groups", 200)
	eventually(t, b.as(other.token), "GET", "/api/plugin/groups", 200)
	short := one.refreshed()
	cut, stays := one.watch(b, ""), other.watch(b, "")
	unused := one.do("POST", "/api/plugin/events/ticket", nil).want(200).field("ticket").(string)
	state := func(i *inside, want int) {
		i.do("PUT", "/api/instances/"+string(i.id)+"/state", `{"state":"ONLINE"}`).want(want)
	}
	state(one, 200)
	state(short, 200)

	left := map[string]any{"count": 1, "instanceIds": []any{one.id}}
	a.do("POST", "/api/v1/nodes/node-1/revoke-cert?dryRun=true", nil).want(200).is("left", left)
	short.do("GET", "/api/plugin/groups", nil).want(200)
	a.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("revoked", nil)
	a.do("POST", "/api/v1/nodes/node-1/revoke-cert", nil).want(200).is("left", left)
	a.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("revoked.by", "admin").is("revoked.left", left)
	for _, refused := range []*inside{one, short} {
		refused.do("GET", "/api/plugin/groups", nil).want(401)
		refused.do("POST", "/api/plugin/auth/refresh", nil).want(401)
		refused.do("POST", "/api/plugin/events/ticket", nil).want(401)
		state(refused, 401)
		refused.on(b).soon("GET", "/api/plugin/groups", 401)
	}
	comes(t, cut, "cut off: ")
	b.as("").do("GET", "/api/v1/events/stream?ticket="+unused, nil).want(401)
	other.do("GET", "/api/plugin/groups", nil).want(200)
	a.group("another", nil)
	comes(t, stays, "another", "cut off")

	b.do("POST", "/api/v1/nodes/node-1/unrevoke-cert", nil).want(200)
	one.on(b).do("GET", "/api/plugin/groups", nil).want(200)
	short.soon("GET", "/api/plugin/groups", 200)
	state(short, 200)
	b.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("revoked", nil)
}

func TestANodeIsNotOpenedWhileItIsRevoked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.do("POST", "/api/v1/nodes/node-1/revoke-cert", nil).want(200)
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(409).naming("unrevoke it first")
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("cordoned", true)
	s.do("POST", "/api/v1/nodes/node-1/unrevoke-cert", nil).want(200)
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200)

	// Of a concurrent revocation and uncordon, only one succeeds.
	for range 10 {
		s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200)
		var both sync.WaitGroup
		for _, what := range []string{"revoke-cert", "uncordon"} {
			both.Go(func() {
				if _, err := s.try("POST", "/api/v1/nodes/node-1/"+what, nil); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		s.do("GET", "/api/v1/nodes/revoked-certs", nil).want(200).is("revokedCns.0", "node-1")
		s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("cordoned", true)
		s.do("POST", "/api/v1/nodes/node-1/unrevoke-cert", nil).want(200)
	}
	s.commit(store.Create(keys.RevokedNode("node-1"), cluster.RevokedNode{Node: "node-1", Until: time.Now().Add(-time.Minute)}))
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("cordoned", false)
}
