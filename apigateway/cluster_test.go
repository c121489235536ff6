package apigateway

import (
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestClusterListsMembersAndLeases(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	started := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a.commit(
		store.Create(keys.Session("enforcer", "e-1"), cluster.Session{Service: "enforcer", Replica: "e-1", URL: "http://e:1", Version: "v1", StartedAt: started}),
		store.Create(keys.Shard("enforcer", 10), cluster.Shard{Service: "enforcer", Replica: "e-1"}),
		store.Create(keys.Shard("enforcer", 9), cluster.Shard{Service: "enforcer", Replica: "e-1"}),
	)
	for _, s := range []*site{a, b} { // both gateways and the enforcer
		await.That(t, "all members are known", func() string {
			r := s.do("GET", "/api/v1/cluster", nil).want(200)
			return await.Unless(r.field("memberCount") == 3.0, "%s", r.raw)
		})
		meta, err := store.Get(t.Context(), a.store, keys.Meta())
		if err != nil {
			t.Fatal(err)
		}
		s.do("GET", "/api/v1/cluster", nil).want(200).is("clusterId", meta.ClusterID).is("schemaVersion", meta.Schema).is("createdAt", meta.CreatedAt)
		members := s.do("GET", "/api/v1/cluster/members", nil).want(200).field("members").([]any)
		i := slices.IndexFunc(members, func(m any) bool { return m.(map[string]any)["nodeId"] == "enforcer/e-1" })
		if i < 0 || len(members) != 3 {
			t.Fatalf("members %v", members)
		}
		m := members[i].(map[string]any)
		if m["restAddr"] != "http://e:1" || m["label"] != "enforcer" || m["joinedAt"] != "2030-01-02T03:04:05Z" || m["raftAddr"] != "" || m["gRPCAddr"] != "" || m["version"] != "v1" {
			t.Errorf("member %v", m)
		}
		leases := s.do("GET", "/api/v1/cluster/leases", nil).want(200).field("leases").([]any)
		if len(leases) != 2 {
			t.Fatalf("leases %v", leases)
		}
		first := leases[0].(map[string]any)
		if first["name"] != "enforcer/9" || first["holder"] != "e-1" || first["shard"] != 9.0 || first["epoch"].(float64) <= 0 {
			t.Errorf("lease %v", first)
		}
	}
	a.user("vera", "VIEWER").do("GET", "/api/v1/cluster", nil).want(403)
}
