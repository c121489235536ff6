package apigateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// refreshed returns the instance with a new short token.
func (i *inside) refreshed() *inside {
	i.t.Helper()
	r := i.do("POST", "/api/plugin/auth/refresh", nil).want(200)
	other := *i
	other.site = i.as(r.field("token").(string))
	return &other
}

// soon repeats a call until its status is as wanted, because other gateways follow with a delay.
func (i *inside) soon(method, path string, status int) {
	i.t.Helper()
	await.That(i.t, fmt.Sprintf("%s %s is answered with %d", method, path, status), func() string {
		i.sequence++
		got := i.do(method, path, nil, "X-Prexor-Sequence", fmt.Sprint(i.sequence))
		return await.Unless(got.status == status, "%s", got.raw)
	})
}

func TestAShortTokenTakesThePlaceOfTheOneBeforeOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	root := a.inside("lobby", "node-1")
	eventually(t, b.as(root.token), "GET", "/api/plugin/groups", 200)

	one := root.refreshed()
	if one.token == root.token {
		t.Fatal("the token of the environment was answered")
	}
	one.say("/api/plugin/ready", nil).want(200)
	one.on(b).do("GET", "/api/plugin/groups", nil).want(200) // also on a gateway that has not seen the instance yet
	one.do("PUT", "/api/instances/"+string(one.id)+"/state", `{"state":"ONLINE"}`).want(200)

	two := one.on(b).refreshed()
	two.do("GET", "/api/plugin/groups", nil).want(200)
	two.on(a).do("GET", "/api/plugin/groups", nil).want(200)
	one.on(b).do("GET", "/api/plugin/groups", nil).want(401)
	one.soon("GET", "/api/plugin/groups", 401)
	one.do("PUT", "/api/instances/"+string(one.id)+"/state", `{"state":"ONLINE"}`).want(401)

	three := one.refreshed() // the response may have been lost
	one.do("POST", "/api/plugin/auth/refresh", nil).want(401)
	two.soon("GET", "/api/plugin/groups", 401)
	three.do("GET", "/api/plugin/groups", nil).want(200)
	root.do("GET", "/api/plugin/groups", nil).want(200)

	a.status(root.id, "node-1", fleet.Status{State: fleet.Stopped, TokenHash: hashOf(root.token)})
	for _, ended := range []*inside{root, three} {
		ended.do("GET", "/api/plugin/groups", nil).want(401)
		ended.do("POST", "/api/plugin/auth/refresh", nil).want(401)
	}
}

func TestAShortTokenIsNoLoginsAndALoginsIsNone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	one, other := s.inside("lobby", "node-1"), s.inside("lobby", "node-1")
	short := one.refreshed()
	short.do("GET", "/api/v1/groups", nil).want(403)
	short.do("GET", "/api/v1/auth/me", nil).want(403)
	short.do("PUT", "/api/instances/"+string(other.id)+"/state", `{"state":"ONLINE"}`).want(403)
	s.do("POST", "/api/plugin/auth/refresh", nil).want(401)
	one.do("POST", "/api/plugin/auth/refresh", nil, "Idempotency-Key", "k").want(200)
	one.do("POST", "/api/plugin/auth/refresh", nil, "Idempotency-Key", "k").want(409).naming("secret")
	parts := strings.Split(short.token, ".")
	forged := s.as(parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])))
	forged.do("GET", "/api/plugin/groups", nil).want(401)
	forged.do("POST", "/api/plugin/auth/refresh", nil).want(401)

	var refused bool
	for range 40 {
		r, err := one.try("POST", "/api/plugin/auth/refresh", nil)
		if err != nil {
			t.Fatal(err)
		}
		if refused = r.status == http.StatusTooManyRequests; refused {
			r.want(429).is("error.code", "RATE_LIMITED")
			break
		}
	}
	if !refused {
		t.Error("an instance gets short tokens without end")
	}
	other.do("POST", "/api/plugin/auth/refresh", nil).want(200)
}

func TestRevokedCredentialsOfAnInstanceAreNoGoodOnAnyGatewayAndForGood(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	one, two, three := a.inside("lobby", "node-1"), a.inside("lobby", "node-1"), a.inside("lobby", "node-1")
	short := one.refreshed()
	list := a.do("GET", "/api/v1/workloads/credentials", nil).want(200).is("total", 4).
		is("data.0.instanceId", "lobby-1").is("data.0.expiresAt", nil).is("data.1.instanceId", "lobby-1").is("data.2.instanceId", "lobby-2")
	if strings.Contains(list.raw, hashOf(one.token)) || strings.Contains(list.raw, short.token) {
		t.Errorf("secrets in %s", list.raw)
	}
	if list.field("data.1.expiresAt") == nil {
		t.Error("the short token does not expire")
	}
	eventually(t, b.as(two.token), "GET", "/api/plugin/groups", 200)

	path := "/api/v1/workloads/credentials/"
	a.user("olga", "OPERATOR").do("DELETE", path+list.field("data.1.tokenId").(string), nil).want(403)
	a.do("DELETE", path+list.field("data.1.tokenId").(string), nil).want(204)
	a.do("DELETE", path+list.field("data.1.tokenId").(string), nil).want(404)
	for _, ended := range []*inside{one, short} {
		ended.say("/api/plugin/ready", nil).want(401)
		ended.do("POST", "/api/plugin/auth/refresh", nil).want(401)
		ended.do("PUT", "/api/instances/"+string(one.id)+"/state", `{"state":"ONLINE"}`).want(401)
		ended.on(b).soon("GET", "/api/plugin/groups", 401)
	}
	a.do("DELETE", path+"instances/lobby-2", nil).want(200).is("instanceId", "lobby-2").is("revokedCredentials", 1)
	a.do("DELETE", path+"instances/"+string(two.id), nil).want(200).is("revokedCredentials", 0)
	a.do("DELETE", path+"instances/nothing", nil).want(404)
	two.say("/api/plugin/ready", nil).want(401)
	three.say("/api/plugin/ready", nil).want(200)
	a.do("GET", "/api/v1/workloads/credentials", nil).want(200).is("total", 1).is("data.0.instanceId", "lobby-3")
	later := newSiteOn(t, a.etcd) // a gateway that starts later accepts it too
	later.as(one.token).do("GET", "/api/plugin/groups", nil).want(401)

	audit := a.do("GET", "/api/v1/audit?action=credentials.revoke", nil).want(200)
	if n := len(audit.data()); n != 2 {
		t.Errorf("%d entries: %s", n, audit.raw)
	}
	again := hashOf("another") // another generation has other tokens
	i, _ := a.view.Snapshot().Instances.Get(one.id)
	next := i.Intent
	next.Generation++
	a.commit(store.Replace(keys.Intent(one.id), next, i.Intent.ModRev))
	a.status(one.id, "node-1", fleet.Status{State: fleet.Online, Generation: next.Generation, TokenHash: again, StartedAt: time.Now()})
	a.as("another").do("GET", "/api/plugin/groups", nil).want(200)
	one.do("GET", "/api/plugin/groups", nil).want(401)

	a.status(two.id, "node-1", fleet.Status{State: fleet.Stopped})
	a.do("DELETE", "/api/v1/services/lobby-2", nil).want(204)
	if _, left := a.view.Snapshot().Credentials.Get(two.id); left {
		t.Error("the record outlives its instance")
	}
}
