package apigateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
)

// key creates an API token and returns the site with it.
func (s *site) key(body string) (*site, *reply) {
	s.t.Helper()
	r := s.do("POST", "/api/v1/api-tokens", body).want(201)
	return s.as(fmt.Sprint(r.field("token"))), r
}

func TestAnAPITokenMayWhatItsScopesAndItsUserMayAndNoMore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	operator := s.user("olga", "OPERATOR")
	s.do("POST", "/api/v1/roles", `{"name":"MAKER","permissions":["tokens.view","tokens.create","groups.view","nodes.view"]}`).want(201)
	maker := s.user("mike", "MAKER")
	operator.do("POST", "/api/v1/api-tokens", `{"name":"x"}`).want(403)
	before := s.revision()
	for body, field := range map[string]string{
		`{"name":"x","scopes":["groups.view","no.such"]}`:              "scopes[1]",
		`{"name":"x","scopes":[]}`:                                     "scopes",
		`{"name":"x","kind":"SOME"}`:                                   "kind",
		`{"name":"x","kind":"PUBLIC","scopes":["tokens.create"]}`:      "scopes[0]",
		`{"name":"x","kind":"PUBLIC","scopes":["groups.view","x"]}`:    "scopes[1]",
		`{"name":"x","scopes":["groups.view"],"expiresInSeconds":-10}`: "expiresInSeconds",
	} {
		maker.do("POST", "/api/v1/api-tokens", body).want(422).naming(field)
	}
	maker.do("POST", "/api/v1/api-tokens", `{"name":"x","scopes":["groups.view","groups.create"]}`).want(403).naming("groups.create")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}

	some, made := maker.key(`{"name":"ci","scopes":["nodes.view","groups.view","nodes.view"]}`)
	made.is("scopes", []any{"groups.view", "nodes.view"}).is("kind", "ALL").is("lastUsedAt", nil)
	path := "/api/v1/api-tokens/" + fmt.Sprint(made.field("id"))
	one := maker.do("GET", path, nil).want(200).is("name", "ci").is("user", "mike").is("token", nil)
	if one.header.Get("ETag") == "" || one.header.Get("ETag") != made.header.Get("ETag") {
		t.Errorf("made at %s, read at %s", made.header.Get("ETag"), one.header.Get("ETag"))
	}
	some.do("GET", "/api/v1/groups", nil).want(200)
	some.do("GET", "/api/v1/api-tokens", nil).want(403)
	s.do("PATCH", "/api/v1/roles/MAKER", `{"permissions":["tokens.create","groups.view"]}`).want(200)
	some.do("GET", "/api/v1/nodes", nil).want(403)
	some.do("GET", "/api/v1/groups", nil).want(200)

	s.do("DELETE", path, nil, "If-Match", `"1"`).want(412)
	s.do("DELETE", path, nil).want(204)
	s.do("GET", path, nil).want(404)
	some.do("GET", "/api/v1/groups", nil).want(401)
}

func TestARefusalSaysWhetherTheRoleLacksThePermissionOrOnlyTheTokensScopes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	vera := s.user("vera", "VIEWER")
	s.do("POST", "/api/v1/roles", `{"name":"MAKER","permissions":["tokens.create","nodes.view","groups.create","system.logs.view"]}`).want(201)
	maker := s.user("mike", "MAKER")
	scoped, _ := maker.key(`{"name":"a","scopes":["nodes.view"]}`)
	public, _ := maker.key(`{"name":"b","kind":"PUBLIC"}`)
	whole, _ := maker.key(`{"name":"c"}`)
	const scopes, role = "the API token's scopes lack the permission ", "the role "
	for _, c := range []struct {
		by                         *site
		method, path, body, naming string
	}{
		{vera, "POST", "/api/v1/groups", `{"name":"x"}`, role + "VIEWER lacks the permission groups.create"},
		{scoped, "POST", "/api/v1/groups", `{"name":"x"}`, scopes + "groups.create, which its user's role MAKER has"},
		{public, "POST", "/api/v1/groups", `{"name":"x"}`, scopes + "groups.create, which its user's role MAKER has"},
		{scoped, "DELETE", "/api/v1/groups/lobby", "", role + "MAKER lacks the permission groups.delete"},
		{whole, "DELETE", "/api/v1/groups/lobby", "", role + "MAKER lacks the permission groups.delete"},
		{scoped, "GET", "/api/v1/system/logs/stream", "", scopes + "system.logs.view"},
		{scoped, "GET", "/api/v1/events/stream", "", role + "MAKER lacks the permission events.stream"},
		{scoped, "GET", "/api/v1/users/mike/preferences", "", role + "MAKER lacks the permission users.view; without it"},
	} {
		c.by.do(c.method, c.path, c.body).want(403).naming(c.naming)
	}
	everything, _ := s.key(`{"name":"d","scopes":["nodes.view"]}`)
	everything.do("PATCH", "/api/v1/users/admin", `{"username":"x"}`).want(403).naming(scopes + "users.update")
	everything.do("POST", "/api/commands/execute", `{"command":"template list"}`).want(403).naming("template list needs the permission templates.view: " + scopes)
	everything.do("GET", "/api/v1/users/admin/preferences", nil).want(403).naming(scopes + "users.view")
}

func TestAnAPITokenDoesNotMakeItsUserSomebodyItCouldLogInAs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token, _ := s.key(`{"name":"x","scopes":["users.update","users.delete"]}`)
	before := s.revision()
	for _, body := range []string{`{"password":"battery staple"}`, `{"email":"eve@example.org"}`, `{"username":"eve"}`} {
		token.do("PATCH", "/api/v1/users/admin", body).want(403)
	}
	if after := s.revision(); after > before+2 { // the token's use and address
		t.Error("a refused request wrote something")
	}
}

func TestAnAPITokenMakesOthersOnlyWhenItIsForThatAndNoneThatOutliveIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	all, made := s.key(`{"name":"all"}`)
	made.is("scopes", nil)
	all.do("POST", "/api/v1/api-tokens", `{"name":"x"}`).want(403).naming("tokens.create")
	maker, _ := s.key(`{"name":"maker","scopes":["tokens.create","groups.view"],"expiresInSeconds":3600}`)
	maker.do("POST", "/api/v1/api-tokens", `{"name":"x"}`).want(422).naming("expiresInSeconds")
	maker.do("POST", "/api/v1/api-tokens", `{"name":"x","expiresInSeconds":7200}`).want(422).naming("expiresInSeconds")
	maker.do("POST", "/api/v1/api-tokens", `{"name":"x","expiresInSeconds":60,"scopes":["groups.delete"]}`).want(403)
	child, made := maker.key(`{"name":"child","expiresInSeconds":60}`)
	made.is("scopes", []any{"groups.view", "tokens.create"})
	child.do("GET", "/api/v1/groups", nil).want(200)
	child.do("GET", "/api/v1/nodes", nil).want(403)
}

func TestAPublicTokenReadsAHundredTimesAMinute(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	public, made := s.key(`{"name":"page","kind":"PUBLIC"}`)
	made.is("kind", "PUBLIC")
	public.do("POST", "/api/v1/groups", `{"name":"x"}`).want(403)
	public.do("GET", "/api/v1/audit", nil).want(403)
	public.do("GET", "/api/v1/users", nil).want(403)
	for range 97 {
		public.do("GET", "/api/instances", nil).want(200)
	}
	r := public.do("GET", "/api/instances", nil).want(429)
	if ms, _ := r.field("retryAfterMs").(float64); ms <= 0 || ms > 60_000 || r.header.Get("Retry-After") == "" {
		t.Errorf("%v %s", r.header, r.raw)
	}
	public.do("GET", "/api/v1/groups", nil).want(429).is("error.code", "RATE_LIMITED").is("retryAfterMs", nil)
	other, _ := s.key(`{"name":"another","kind":"PUBLIC"}`)
	other.do("GET", "/api/instances", nil).want(200)
	s.do("GET", "/api/instances", nil).want(200)
}

func TestWhenATokenWasLastUsedIsWrittenOnceAnHour(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ci, made := s.key(`{"name":"ci"}`)
	path := "/api/v1/api-tokens/" + fmt.Sprint(made.field("id"))
	for range 10 {
		ci.do("GET", "/api/v1/groups", nil).want(200)
	}
	await.That(t, "the use is known", func() string {
		got := s.do("GET", path, nil).want(200)
		at, err := time.Parse(time.RFC3339, fmt.Sprint(got.field("lastUsedAt")))
		return await.Unless(err == nil && !at.Before(time.Now().Add(-time.Minute)), "%s", got.raw)
	})
	before := s.revision()
	for range 10 {
		ci.do("GET", "/api/v1/groups", nil).want(200)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("each use is written: %v", keys)
	}
}
