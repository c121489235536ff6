package apigateway

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestAJoinTokenIsShownOnceAndItsNodeIsPendingOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	made := a.do("POST", "/api/v1/admin/tokens", `{"nodeId":"node-2","ttl":"15m"}`).want(201).is("nodeId", "node-2").is("status", "ACTIVE")
	if warning, _ := made.field("warning").(string); !strings.Contains(warning, "no host can use this token") || !strings.Contains(made.header.Get("Warning"), warning) {
		t.Errorf("what it is not good for is not told: %q, header %q", warning, made.header.Get("Warning"))
	}
	a.do("GET", "/api/v1/admin/tokens", nil).want(200).is("data.0.warning", nil)
	token, _ := made.field("token").(string)
	id, _ := made.field("tokenId").(string)
	if !regexp.MustCompile(`^pxr_[a-z0-9]{32}$`).MatchString(token) || id == "" || made.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s, %v", made.raw, made.header)
	}
	expires, err := time.Parse(time.RFC3339Nano, made.field("expiresAt").(string))
	if left := time.Until(expires); err != nil || left < 14*time.Minute || left > 15*time.Minute {
		t.Errorf("good until %v, %v", expires, err)
	}
	if held := storetest.Holding(t, a.etcd.Endpoint, token[4:]); len(held) > 0 {
		t.Errorf("the token stands in %v", held)
	}
	eventually(t, b, "GET", "/api/v1/nodes/node-2", 200)
	b.do("GET", "/api/v1/nodes/node-2", nil).want(200).is("id", "node-2").is("type", "PENDING").is("status", "PENDING").is("tokenId", id).is("joinToken", nil)
	b.do("GET", "/api/v1/nodes", nil).want(200).is("total", 2).is("data.0.id", "node-1").is("data.1.status", "PENDING")
	b.do("GET", "/api/v1/nodes?state=pending", nil).want(200).is("total", 1).is("data.0.id", "node-2")
	b.do("GET", "/api/v1/nodes?state=ONLINE", nil).want(200).is("total", 1)
	list := b.do("GET", "/api/v1/admin/tokens", nil).want(200).is("total", 1).is("data.0.tokenId", id).is("data.0.status", "ACTIVE")
	if strings.Contains(list.raw, token) || list.field("data.0.token") != nil {
		t.Errorf("%s", list.raw)
	}
	b.do("POST", "/api/v1/admin/tokens", `{"nodeId":"node-2"}`).want(409).naming("revoke it first")
	b.do("POST", "/api/v1/admin/tokens", `{"nodeId":"node-1"}`).want(409).naming("joined already")
	b.do("DELETE", "/api/v1/admin/tokens/"+id, nil).want(204)
	b.do("GET", "/api/v1/nodes/node-2", nil).want(404)
	b.do("DELETE", "/api/v1/admin/tokens/"+id, nil).want(404)
	b.do("GET", "/api/v1/audit?pageSize=2", nil).want(200).is("data.0.action", "join-token.delete").is("data.1.action", "join-token.create").
		is("data.1.resourceId", id).is("data.1.after.node", "node-2")
}

func TestAJoinTokenIsKeptForNobodyWhoAsksAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.do("POST", "/api/v1/admin/tokens", `{"nodeId":"node-2"}`, keyed, "k").want(201)
	token, _ := made.field("token").(string)
	if held := storetest.Holding(t, s.etcd.Endpoint, token[4:]); len(held) > 0 {
		t.Errorf("the token stands in %v", held)
	}
	again := s.do("POST", "/api/v1/admin/tokens", `{"nodeId":"node-2"}`, keyed, "k")
	if again.status < 400 || strings.Contains(again.raw, token) {
		t.Errorf("%d: %s", again.status, again.raw)
	}
}

func TestAnExpiredJoinTokenIsShownAsThatAndGivesWay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	old := cluster.JoinToken{ID: "old", Node: "node-1", Hash: "x", CreatedAt: time.Now().Add(-2 * time.Hour), ExpiresAt: time.Now().Add(-time.Hour)}
	older := old
	older.ID, older.Node, older.ExpiresAt = "older", "node-2", time.Now().Add(-25*time.Hour)
	s.commit(store.Create(keys.JoinToken("node-1"), old), store.Create(keys.JoinToken("node-2"), older))
	s.do("GET", "/api/v1/admin/tokens", nil).want(200).is("total", 2).is("data.0.status", "EXPIRED")
	s.do("GET", "/api/v1/nodes/node-1", nil).want(404)
	s.do("GET", "/api/v1/nodes", nil).want(200).is("total", 0)
	s.do("POST", "/api/v1/admin/tokens", `{"nodeId":"node-1","ttlSeconds":60}`).want(201)
	s.node("node-3", fleet.Resources{})
	s.commit(store.Create(keys.JoinToken("node-3"), cluster.JoinToken{ID: "used", Node: "node-3", ExpiresAt: time.Now().Add(time.Hour)}))
	if err := s.gateway.operate.PruneJoinTokens(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.revisionSeen()
	s.do("GET", "/api/v1/admin/tokens", nil).want(200).is("total", 1).is("data.0.nodeId", "node-1").is("data.0.status", "ACTIVE")
}

// revisionSeen waits until the view has all writes.
func (s *site) revisionSeen() {
	s.t.Helper()
	s.do("GET", "/livez", nil)
	if _, err := s.view.WaitRev(s.t.Context(), s.revision()); err != nil {
		s.t.Fatal(err)
	}
}

func TestOfManyWhoAskForTokensOfOneNodeOneGetsIt(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	var wg sync.WaitGroup
	statuses := make([]int, 10)
	for n := range statuses {
		wg.Go(func() {
			if r, err := []*site{a, b}[n%2].try("POST", "/api/v1/admin/tokens", `{"nodeId":"node-1"}`); err == nil {
				statuses[n] = r.status
			}
		})
	}
	wg.Wait()
	made := 0
	for _, status := range statuses {
		switch status {
		case 201:
			made++
		case 409:
		default:
			t.Errorf("statuses %v", statuses)
		}
	}
	if made != 1 {
		t.Errorf("%d made: %v", made, statuses)
	}
}

func TestABadWishForAJoinTokenIsRefusedByNameAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	before := s.revision()
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{}`: {400, "nodeId"}, `{"nodeId":"a b"}`: {422, "nodeId"}, `{"nodeId":"../x"}`: {422, "nodeId"}, `{"nodeId":"n","ttl":"soon"}`: {422, "ttl"},
		`{"nodeId":"n","ttl":"d"}`: {422, "ttl"}, `{"nodeId":"n","ttl":"-1h"}`: {422, "ttl"}, `{"nodeId":"n","ttl":"1.5h"}`: {422, "ttl"}, `{"nodeId":"n","ttl":"31d"}`: {422, "ttlSeconds"},
		`{"nodeId":"n","ttl":"65535d"}`: {422, "ttlSeconds"}, `{"nodeId":"n","ttlSeconds":0}`: {422, "ttlSeconds"}, `{"nodeId":"n","ttlSeconds":-5}`: {422, "ttlSeconds"},
		`{"nodeId":"n","ttlSeconds":9223372036854775807}`: {422, "ttlSeconds"}, `{"nodeId":"n","ttl":"1h","ttlSeconds":60}`: {422, "ttl"}, `{"nodeId":"n","tll":"1h"}`: {400, "tll"},
	} {
		s.do("POST", "/api/v1/admin/tokens", body).want(want.status).naming(want.says)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	viewer := s.user("viewer", "VIEWER")
	viewer.do("POST", "/api/v1/admin/tokens", `{"nodeId":"n"}`).want(403)
	viewer.do("DELETE", "/api/v1/admin/tokens/x", nil).want(403)
}
