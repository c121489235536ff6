package apigateway

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// second starts another gateway of the same cluster, with the same token.
func second(t *testing.T, s *site) *site {
	t.Helper()
	other := newSiteOn(t, s.etcd)
	return other.as(s.token)
}

// eventually repeats a request until its status is as wanted, because other gateways follow with a
// delay.
func eventually(t *testing.T, s *site, method, path string, status int) {
	t.Helper()
	await.That(t, fmt.Sprintf("%s %s is answered with %d", method, path, status), func() string {
		got := s.do(method, path, nil)
		return await.Unless(got.status == status, "%s", got.raw)
	})
}

func TestAUserOfANewRoleMayDoWhatItSaysOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.do("POST", "/api/v1/roles", `{"name":"builder","permissions":["groups.view","groups.create"]}`).want(201).
		is("name", "BUILDER").is("builtIn", false).is("userCount", 0)
	r := a.do("POST", "/api/v1/users", `{"username":"Bob","password":"correct horse","role":"builder","email":"bob@example.org"}`).want(201)
	r.is("username", "bob").is("id", "bob").is("role", "BUILDER").is("email", "bob@example.org")
	if strings.Contains(r.raw, "argon2") || r.header.Get("ETag") == "" {
		t.Errorf("made %s", r.raw)
	}
	a.do("GET", "/api/v1/roles/BUILDER", nil).want(200).is("userCount", 1)

	bob := a.as(a.login("bob", "correct horse"))
	bobThere := b.as(bob.token)
	bob.do("POST", "/api/v1/groups", `{"name":"made-by-bob"}`).want(201)
	bob.do("DELETE", "/api/v1/groups/made-by-bob", nil).want(403)
	bob.do("GET", "/api/v1/users", nil).want(403)
	eventually(t, bobThere, "GET", "/api/v1/groups", 200)

	a.do("PATCH", "/api/v1/roles/builder", `{"permissions":["groups.view"]}`).want(200)
	bob.do("POST", "/api/v1/groups", `{"name":"another"}`).want(403)
	eventually(t, bobThere, "POST", "/api/v1/groups", 403)

	bob.do("POST", "/api/v1/auth/logout", nil).want(200).is("status", "ok")
	bob.do("GET", "/api/v1/groups", nil).want(401)
	eventually(t, bobThere, "GET", "/api/v1/groups", 401)
	third := newSiteOn(t, a.etcd) // a gateway that starts later knows it too
	third.as(bob.token).do("GET", "/api/v1/groups", nil).want(401)

	again := a.as(a.login("bob", "correct horse"))
	a.do("DELETE", "/api/v1/users/bob", nil).want(204)
	again.do("GET", "/api/v1/groups", nil).want(401)
	a.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"VIEWER"}`).want(201)
	again.do("GET", "/api/v1/groups", nil).want(401)
}

func TestALoginThatEndedSinceItWasJudgedIsNotRefreshed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"VIEWER"}`).want(201)
	for password, end := range map[string]func(bob *site){
		"battery staple": func(bob *site) { bob.do("POST", "/api/v1/auth/logout", nil).want(200) },
		"correct horse":  func(*site) { s.do("PATCH", "/api/v1/users/bob", `{"password":"battery staple"}`).want(200) },
	} {
		s.do("PATCH", "/api/v1/users/bob", `{"password":"`+password+`"}`).want(200)
		bob := s.as(s.login("bob", password))
		who, err := s.gateway.auth.Authenticate(t.Context(), "Bearer "+bob.token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.gateway.auth.Refresh(who); err != nil {
			t.Errorf("a login that is good is not refreshed: %v", err)
		}
		end(bob)
		if l, err := s.gateway.auth.Refresh(who); !errs.Is(err, errs.Unauthenticated) || l.ID != "" {
			t.Errorf("a login that has ended is refreshed: %q, %v", l.ID, err)
		}
	}
}

func TestARoleThatIsLeftWithoutPermissionsIsStillThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["groups.view"]}`).want(201)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"R"}`).want(201)
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":[]}`).want(200).is("userCount", 1)
	s.do("GET", "/api/v1/roles/R", nil).want(200).is("userCount", 1)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["nodes.view"]}`).want(409)
	s.as(s.login("bob", "correct horse")).do("GET", "/api/v1/groups", nil).want(403)
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":["groups.view"]}`).want(200)
	s.as(s.login("bob", "correct horse")).do("GET", "/api/v1/groups", nil).want(200)
}

func TestEachChangeOfAnIdentityIsAuditedWithWhatItWasAndIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["groups.view"]}`).want(201)
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":["nodes.view"]}`).want(200)
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":["nodes.view"]}`).want(200) // changes nothing
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"R"}`).want(201)
	s.do("PATCH", "/api/v1/users/bob", `{"password":"battery staple"}`).want(200)
	s.do("DELETE", "/api/v1/users/bob", nil).want(204)
	s.do("DELETE", "/api/v1/roles/R", nil).want(204)
	list := s.do("GET", "/api/v1/audit", nil).want(200)
	var got []string
	for _, e := range list.field("data").([]any) {
		e := e.(map[string]any)
		got = append(got, fmt.Sprintf("%v %v %v -> %v", e["action"], e["resourceId"], e["before"], e["after"]))
	}
	want := []string{
		"role.delete R map[permissions:[nodes.view]] -> <nil>",
		"user.delete bob map[role:R username:bob] -> <nil>",
		"user.update bob map[role:R username:bob] -> map[password:changed role:R username:bob]",
		"user.create bob <nil> -> map[role:R username:bob]",
		"role.update R map[permissions:[groups.view]] -> map[permissions:[nodes.view]]",
		"role.create R <nil> -> map[permissions:[groups.view]]",
	}
	if len(got) < len(want) || strings.Join(got[:len(want)], "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if strings.Contains(list.raw, "argon2") || strings.Contains(list.raw, "staple") {
		t.Error("the audit knows passwords")
	}
}

func TestPermissionsCannotBeEscalated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"CLERK","permissions":["users.view","users.create","users.update","users.delete","roles.manage"]}`).want(201)
	s.do("POST", "/api/v1/users", `{"username":"clerk","password":"correct horse","role":"CLERK"}`).want(201)
	clerk := s.as(s.login("clerk", "correct horse"))
	before := s.revision()
	for _, m := range []struct{ method, path, body string }{
		{"POST", "/api/v1/users", `{"username":"x","password":"correct horse","role":"ADMIN"}`},
		{"PATCH", "/api/v1/users/clerk", `{"role":"ADMIN"}`},
		{"PATCH", "/api/v1/users/admin", `{"password":"correct horse"}`},
		{"PATCH", "/api/v1/users/admin", `{"username":"x"}`},
		{"DELETE", "/api/v1/users/admin", ``},
		{"POST", "/api/v1/roles", `{"name":"X","permissions":["system.shutdown"]}`},
		{"PATCH", "/api/v1/roles/CLERK", `{"permissions":["system.shutdown"]}`},
		{"PATCH", "/api/v1/roles/ADMIN", `{"permissions":[]}`},
		{"DELETE", "/api/v1/roles/OPERATOR", ``},
	} {
		clerk.do(m.method, m.path, m.body).want(403)
	}
	clerk.do("POST", "/api/v1/roles", `{"name":"X","permissions":["cluster.manage"]}`).want(403)
	s.do("PATCH", "/api/v1/roles/ADMIN", `{"permissions":[]}`).want(403)
	s.do("DELETE", "/api/v1/roles/ADMIN", nil).want(403)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	s.do("POST", "/api/v1/roles", `{"name":"X","permissions":["cluster.manage"]}`).want(201) // allowed for a caller with all other permissions
	s.do("DELETE", "/api/v1/roles/X", nil).want(204)
	clerk.do("POST", "/api/v1/users", `{"username":"x","password":"correct horse","role":"CLERK"}`).want(201)
	viewer := s.user("vera", "VIEWER")
	viewer.do("PATCH", "/api/v1/users/vera", `{"role":"VIEWER"}`).want(403)
	viewer.do("PATCH", "/api/v1/users/x", `{"username":"y"}`).want(403)
	viewer.do("PATCH", "/api/v1/users/vera", `{"username":"Verena"}`).want(200).is("username", "verena")
	viewer.do("GET", "/api/v1/groups", nil).want(401) // the user was renamed
}

func TestInvalidUsersAndRolesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["groups.view"]}`).want(201)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"R"}`).want(201)
	before := s.revision()
	for body, field := range map[string]string{
		`{"password":"correct horse","role":"R"}`:                                         "username",
		`{"username":"x","role":"R"}`:                                                     "password",
		`{"username":"x","password":"correct horse"}`:                                     "role",
		`{"username":"x","password":"short","role":"R"}`:                                  "password",
		`{"username":"../x","password":"correct horse","role":"R"}`:                       "username",
		`{"username":"` + strings.Repeat("x", 33) + `","password":"12345678","role":"R"}`: "username",
		`{"username":"x","password":"correct horse","role":"NOBODY"}`:                     "role",
		`{"username":"x","password":"correct horse","role":"R","email":"not one"}`:        "email",
	} {
		s.do("POST", "/api/v1/users", body).want(422).naming(field)
	}
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"R"}`).want(409)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":[]}`).want(409)
	s.do("POST", "/api/v1/roles", `{"name":"VIEWER","permissions":[]}`).want(409)
	s.do("POST", "/api/v1/roles", `{"name":"a-b","permissions":[]}`).want(422).naming("name")
	s.do("POST", "/api/v1/roles", `{"name":"B"}`).want(422).naming("permissions")
	s.do("POST", "/api/v1/roles", `{"name":"B","permissions":["groups.view","no.such"]}`).want(422).naming("permissions[1]")
	s.do("DELETE", "/api/v1/roles/R", nil).want(409).naming("1 users have")
	for _, path := range []string{"/api/v1/users/nobody", "/api/v1/roles/NOBODY"} {
		s.do("GET", path, nil).want(404)
		s.do("DELETE", path, nil).want(404)
	}
	s.do("PATCH", "/api/v1/users/nobody", `{"role":"R"}`).want(404)
	s.do("PATCH", "/api/v1/users/bob", `{"username":"admin"}`).want(409)
	s.do("PATCH", "/api/v1/users/bob", `{"role":"VIEWER"}`, "If-Match", `"1"`).want(412)
	s.do("DELETE", "/api/v1/users/bob", nil, "If-Match", `"1"`).want(412)
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":[]}`, "If-Match", `"1"`).want(412)
	s.do("DELETE", "/api/v1/users/admin", nil).want(409).naming("last user")
	s.do("PATCH", "/api/v1/users/admin", `{"role":"VIEWER"}`).want(409).naming("last user")
	s.do("DELETE", "/api/v1/users/bob?dryRun=true", nil).want(200).is("username", "bob")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	s.do("PATCH", "/api/v1/roles/VIEWER", `{"permissions":["groups.view"]}`).want(200).is("builtIn", true)
	vera := s.user("vera", "VIEWER")
	vera.do("GET", "/api/v1/nodes", nil).want(403)
	s.do("PATCH", "/api/v1/users/bob?dryRun=true", `{"role":"VIEWER"}`).want(200).is("role", "VIEWER")
	s.do("GET", "/api/v1/users/bob", nil).want(200).is("role", "R")
}

func TestABuiltInRoleIsAsItWasWhenItGetsItsOwnPermissionsAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.do("GET", "/api/v1/roles/OPERATOR", nil).want(200)
	if r.header.Get("ETag") != "" {
		t.Errorf("a revision of nothing: %v", r.header)
	}
	before := s.revision()
	s.do("PATCH", "/api/v1/roles/OPERATOR", r.raw).want(200)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("what it had already was written: %v", keys)
	}
	changed := s.do("PATCH", "/api/v1/roles/OPERATOR", `{"permissions":["groups.view"]}`).want(200)
	s.do("PATCH", "/api/v1/roles/OPERATOR", r.raw, "If-Match", `"1"`).want(412)
	s.do("PATCH", "/api/v1/roles/OPERATOR", r.raw, "If-Match", changed.header.Get("ETag")).want(200)
	if _, err := store.Get(t.Context(), s.store, keys.Role("OPERATOR")); !errs.Is(err, errs.NotFound) {
		t.Errorf("its record stays: %v", err)
	}
	s.do("GET", "/api/v1/roles/OPERATOR", nil).want(200)
}

func TestWhoIsGivenARoleLeavesItsETagAsItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	etag := s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["groups.view"]}`).want(201).header.Get("ETag")
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"R"}`).want(201)
	s.do("POST", "/api/v1/users", `{"username":"ann","password":"correct horse","role":"VIEWER"}`).want(201)
	s.do("PATCH", "/api/v1/users/ann", `{"role":"R"}`).want(200)
	if got := s.do("GET", "/api/v1/roles/R", nil).want(200).is("userCount", 2).header.Get("ETag"); got != etag || etag == "" {
		t.Errorf("the ETag was %s and is %s", etag, got)
	}
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":["nodes.view"]}`, "If-Match", etag).want(200)
}

func TestNoRoleIsDeletedThatSomebodyWasGivenMeanwhile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["groups.view"]}`).want(201)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"VIEWER"}`).want(201)

	late := view.New(s.store, nil) // never receives changes
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- late.Run(ctx) }()
	if _, err := late.WaitRev(ctx, s.revision()); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	there := ops.New(ops.Config{Store: s.store, View: late, Now: time.Now})
	s.do("PATCH", "/api/v1/users/bob", `{"role":"R"}`).want(200)
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := there.DeleteRole(ctx, txn.Actor{User: "admin"}, "R", []account.Permission{auth.GroupsView}, 0, false)
	if _, gone := store.Get(t.Context(), s.store, keys.Role("R")); err == nil || gone != nil {
		t.Errorf("a role that somebody has was deleted: %v, %v", err, gone)
	}
	s.do("DELETE", "/api/v1/roles/R", nil).want(409)
	s.do("PATCH", "/api/v1/users/bob", `{"role":"VIEWER"}`).want(200)
	s.do("DELETE", "/api/v1/roles/R", nil).want(204)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["groups.view"]}`).want(201)
	s.do("DELETE", "/api/v1/roles/R", nil).want(204)
}

func TestWhoMayLessTakesNothingFromARoleThatMayMore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"SUPER","permissions":["system.shutdown","groups.view"]}`).want(201)
	s.do("POST", "/api/v1/roles", `{"name":"CLERK","permissions":["roles.manage","groups.view"]}`).want(201)
	clerk := s.user("clerk", "CLERK")
	clerk.do("PATCH", "/api/v1/roles/SUPER", `{"permissions":["groups.view"]}`).want(403)
	clerk.do("DELETE", "/api/v1/roles/SUPER", nil).want(403)
}

func TestAnotherPasswordEndsAllLoginsAndAnotherNameTakesTheTokensAlong(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"ADMIN"}`).want(201)
	old := s.as(s.login("bob", "correct horse"))
	key := s.as(old.do("POST", "/api/v1/api-tokens", `{"name":"ci"}`).want(201).field("token").(string))
	old.do("POST", "/api/v1/auth/change-password", `{"currentPassword":"wrong","newPassword":"battery staple"}`).want(401)
	old.do("POST", "/api/v1/auth/change-password", `{"currentPassword":"correct horse","newPassword":"short"}`).want(422).naming("newPassword")
	key.do("POST", "/api/v1/auth/change-password", `{"currentPassword":"correct horse","newPassword":"battery staple"}`).want(403)
	key.do("POST", "/api/v1/auth/logout", nil).want(403)
	key.do("PATCH", "/api/v1/users/bob", `{"password":"battery staple"}`).want(403)
	fresh := s.as(old.do("POST", "/api/v1/auth/change-password", `{"currentPassword":"correct horse","newPassword":"battery staple"}`).
		want(200).field("token").(string))
	old.do("GET", "/api/v1/auth/me", nil).want(401)
	fresh.do("GET", "/api/v1/auth/me", nil).want(200).is("username", "bob")
	s.as("").do("POST", "/api/v1/auth/login", `{"username":"bob","password":"correct horse"}`).want(401)

	s.do("PATCH", "/api/v1/users/bob", `{"username":"robert"}`).want(200)
	fresh.do("GET", "/api/v1/auth/me", nil).want(401)
	key.do("GET", "/api/v1/auth/me", nil).want(200).is("username", "robert")
	s.do("DELETE", "/api/v1/users/robert", nil).want(204)
	key.do("GET", "/api/v1/auth/me", nil).want(401)
	s.do("GET", "/api/v1/api-tokens", nil).want(200).is("total", 0)
}

func TestATokenMadeWhileItsUserGoesIsNotTheNextOnesOfTheName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"MAKER","permissions":["tokens.create","groups.view"]}`).want(201)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"MAKER"}`).want(201)
	made := s.as(s.login("bob", "correct horse")).do("POST", "/api/v1/api-tokens", `{"name":"late"}`).want(201)
	record, err := store.Get(t.Context(), s.store, keys.APIToken(made.field("id").(string)))
	if err != nil {
		t.Fatal(err)
	}
	late := s.as(made.field("token").(string))
	late.do("GET", "/api/v1/groups", nil).want(200)
	s.do("DELETE", "/api/v1/users/bob", nil).want(204)
	s.commit(store.Create(keys.APIToken(record.ID), record)) // as by a gateway that has not seen the change
	late.do("GET", "/api/v1/groups", nil).want(401)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"ADMIN"}`).want(201)
	late.do("GET", "/api/v1/groups", nil).want(401)
}

func TestATokenIsDeletedAlsoWhileItsUseIsNoted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 10 {
		id := s.do("POST", "/api/v1/api-tokens", `{"name":"busy"}`).want(201).field("id").(string)
		record, err := store.Get(t.Context(), s.store, keys.APIToken(id))
		if err != nil {
			t.Fatal(err)
		}
		record.LastUsedAt = time.Now().UTC()
		s.commit(store.Replace(keys.APIToken(id), record, record.ModRev)) // which the gateway has not seen
		s.do("DELETE", "/api/v1/api-tokens/"+id, nil).want(204)
	}
	made, ended := 0, 0
	for _, e := range s.do("GET", "/api/v1/audit?pageSize=100", nil).want(200).field("data").([]any) {
		switch entry := e.(map[string]any); entry["action"] {
		case "api-token.create":
			made++
		case "api-token.delete":
			ended++
			if before, _ := entry["before"].(map[string]any); before["name"] != "busy" || before["hash"] != nil {
				t.Errorf("of a deleted token the audit keeps %v", before)
			}
		}
	}
	if made != 10 || ended != 10 {
		t.Errorf("the audit has %d tokens made and %d deleted, want 10 each", made, ended)
	}
}

func TestTwoAdminsCannotRemoveEachOther(t *testing.T) {
	t.Parallel()
	for range 2 {
		s := newSite(t)
		s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"ADMIN"}`).want(201)
		bob := s.as(s.login("bob", "correct horse"))
		var both sync.WaitGroup
		both.Go(func() { s.do("DELETE", "/api/v1/users/bob", nil) })
		both.Go(func() { bob.do("DELETE", "/api/v1/users/admin", nil) })
		both.Wait()
		users, _, err := store.List(t.Context(), s.store, keys.Users())
		if err != nil || len(users) != 1 {
			t.Fatalf("%d users are left, %v", len(users), err)
		}
	}
}

// holding returns callers with exactly the given permissions.
type holding struct {
	*site
	by map[string]*site
}

func (h *holding) of(permissions []account.Permission) *site {
	h.t.Helper()
	key := fmt.Sprint(permissions)
	if who, ok := h.by[key]; ok {
		return who
	}
	name := fmt.Sprintf("holder%d", len(h.by))
	h.commit(store.Create(keys.Role(strings.ToUpper(name)), account.Role{Name: strings.ToUpper(name), Edition: account.PermissionEdition, Permissions: permissions}))
	h.by[key] = h.user(name, strings.ToUpper(name))
	return h.by[key]
}

// alsoNeeds are additional permissions that a route requires because of the body.
var alsoNeeds = map[string]account.Permission{
	"PUT /api/v1/groups/:name": auth.GroupsCreate, // it creates a group
}

func TestEveryRouteWantsAllThePermissionsItSaysAndNoOthers(t *testing.T) {
	t.Parallel()
	s := &holding{newSite(t), map[string]*site{}}
	admin, _ := auth.RoleOf(s.view.Snapshot(), auth.RoleAdmin)
	for _, r := range s.routes() {
		wanted := r.Demand.Permissions()
		if len(wanted) == 0 {
			continue
		}
		route := r.Method + " " + r.Path
		path := strings.NewReplacer(":group", "x", ":name", "x", ":id", "x", "*path", "x", ":hash", "x", ":platform", "x", ":version", "x").Replace(r.Path)
		if route == "POST /api/v1/system/shutdown" {
			path += "?dryRun=true" // the other requests need the same gateway
		}
		for _, p := range wanted {
			lacking := slices.DeleteFunc(append([]account.Permission{auth.ClusterManage}, admin.Permissions...), func(other account.Permission) bool { return other == p })
			who := s.of(lacking)
			before := s.revision()
			if got := who.do(r.Method, path, "{}"); got.status != 403 {
				t.Errorf("%s without %s: %d %s", route, p, got.status, got.raw)
			}
			if keys := s.moved(before); len(keys) > 0 {
				t.Errorf("%s without %s wrote something: %v", route, p, keys)
			}
		}
		if extra, ok := alsoNeeds[route]; ok {
			wanted = append(slices.Clone(wanted), extra)
		}
		if got := s.of(wanted).do(r.Method, path, "{}"); got.status == 401 || got.status == 403 || got.status == 500 {
			t.Errorf("%s with what it says it needs: %d %s", route, got.status, got.raw)
		}
	}
}

func TestARotatedKeyIsAcceptedOnceMoreOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	first := a.do("GET", "/api/v1/auth/keys", nil).want(200).is("previous", nil)
	rotated := a.do("POST", "/api/v1/auth/keys/rotate", nil).want(200).is("previous", first.field("current"))
	if rotated.field("current") == first.field("current") || rotated.header.Get("ETag") == first.header.Get("ETag") {
		t.Errorf("%s became %s", first.raw, rotated.raw)
	}
	await.That(t, "the other gateway has the new key", func() string {
		got := b.do("GET", "/api/v1/auth/keys", nil).want(200)
		return await.Unless(got.raw == rotated.raw, "%s", got.raw)
	})
	fresh := a.as(a.login("admin", adminPassword))
	b.as(fresh.token).do("GET", "/api/v1/groups", nil).want(200)
	a.as(b.login("admin", adminPassword)).do("GET", "/api/v1/groups", nil).want(200)
	fresh.do("POST", "/api/v1/auth/keys/rotate?dryRun=true", nil).want(400)
	fresh.do("POST", "/api/v1/auth/keys/rotate", nil).want(200).is("previous", rotated.field("current"))
	a.do("GET", "/api/v1/groups", nil).want(401)
	eventually(t, b, "GET", "/api/v1/groups", 401)
	third := newSiteOn(t, a.etcd)
	third.as(a.token).do("GET", "/api/v1/groups", nil).want(401)
	third.as(fresh.token).do("GET", "/api/v1/groups", nil).want(200)
	if got := fresh.do("GET", "/api/v1/audit", nil).want(200).raw; strings.Count(got, "auth.rotate-keys") != 2 {
		t.Errorf("the audit has %s", got)
	}
}

func TestAPasswordIsHashedAnewAtALoginWhenItWasHashedOtherwise(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.passwordCost = auth.Cost{} })
	user, err := store.Get(t.Context(), s.store, keys.User("admin"))
	if err != nil {
		t.Fatal(err)
	}
	salt, enc := []byte("0123456789abcdef"), base64.RawStdEncoding
	key := argon2.IDKey([]byte(adminPassword), salt, 1, 8192, 1, 32)
	user.PasswordHash = "$argon2id$v=19$m=8192,t=1,p=1$" + enc.EncodeToString(salt) + "$" + enc.EncodeToString(key)
	s.commit(store.Replace(keys.User("admin"), user, user.ModRev))
	before := s.as(s.login("admin", adminPassword))
	var now account.User
	await.That(t, "the password is hashed anew", func() string {
		now, err = store.Get(t.Context(), s.store, keys.User("admin"))
		return await.Unless(err == nil && strings.HasPrefix(now.PasswordHash, "$argon2id$v=19$m=19456,t=2,p=1$"), "%+v, %v", now, err)
	})
	if now.Epoch != user.Epoch || now.Role != user.Role {
		t.Errorf("%+v became %+v", user, now)
	}
	before.do("GET", "/api/v1/auth/me", nil).want(200)
	s.revisionSeen()
	s.do("GET", "/api/v1/audit?action=user.rehash", nil).want(200).is("total", 1).is("data.0.resourceId", "admin").is("data.0.username", "admin")
	s.do("PATCH", "/api/v1/users/admin", `{"email":"admin@example.org"}`, "If-Match", fmt.Sprintf("%q", fmt.Sprint(user.ModRev))).want(412).naming("admin changed it at")
	s.as("").do("POST", "/api/v1/auth/login", map[string]string{"username": "admin", "password": "wrong"}).want(401)
	s.login("admin", adminPassword)
	if again, err := store.Get(t.Context(), s.store, keys.User("admin")); err != nil || again.PasswordHash != now.PasswordHash {
		t.Error("it is hashed anew at each login")
	}
}

func TestChangingOnesOwnPasswordAnswersWithATokenThatWorks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"ADMIN"}`).want(201)
	bob := s.as(s.login("bob", "correct horse"))
	next := func(r *reply) *site {
		t.Helper()
		token, _ := r.want(200).field("token").(string)
		if token == "" || r.field("refreshToken") == nil {
			t.Fatalf("no tokens: %s", r.raw)
		}
		bob.do("GET", "/api/v1/auth/me", nil).want(401)
		return s.as(token)
	}
	bob = next(bob.do("POST", "/api/v1/auth/change-password", `{"currentPassword":"correct horse","newPassword":"battery staple"}`))
	bob.do("GET", "/api/v1/auth/me", nil).want(200).is("username", "bob")
	bob = next(bob.do("PATCH", "/api/v1/users/bob", `{"password":"correct horse"}`).is("username", "bob"))
	bob.do("GET", "/api/v1/auth/me", nil).want(200).is("username", "bob")
	bob = next(bob.do("PATCH", "/api/v1/users/bob", `{"username":"robert"}`).is("username", "robert"))
	bob.do("PATCH", "/api/v1/users/robert", `{"email":"bob@example.org"}`).want(200).is("token", nil)
	bob.do("PATCH", "/api/v1/users/robert?dryRun=true", `{"password":"another horse"}`).want(200).is("token", nil)
	s.do("PATCH", "/api/v1/users/robert", `{"password":"another horse"}`).want(200).is("token", nil)
	bob.do("GET", "/api/v1/auth/me", nil).want(401)
}

func TestATokenIsGoodAtAGatewayThatHasYetToSeeTheChangeItIsOf(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"ADMIN"}`).want(201)
	old := s.as(s.login("bob", "correct horse"))
	behind := newLagging(t, s.etcd)
	behind.stopView()
	fresh := s.as(old.do("PATCH", "/api/v1/users/bob", `{"password":"battery staple"}`).want(200).field("token").(string))
	answered, reads := make(chan *reply, 1), behind.faults.Reads()
	go func() {
		r, err := behind.as(fresh.token).try("GET", "/api/v1/auth/me", nil)
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	behind.readAgain(reads, 1, func() bool { return len(answered) == 1 })
	behind.resume()
	if r := <-answered; r != nil {
		r.want(200).is("username", "bob")
	}
	behind.as(old.token).do("GET", "/api/v1/auth/me", nil).want(401)
}

func TestATokenThatAGatewayCannotJudgeYetIsNotRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"ADMIN"}`).want(201)
	old := s.as(s.login("bob", "correct horse"))
	behind := newLagging(t, s.etcd)
	behind.stopView()
	fresh := s.as(old.do("PATCH", "/api/v1/users/bob", `{"password":"battery staple"}`).want(200).field("token").(string))
	behind.as(fresh.token).do("GET", "/api/v1/auth/me", nil).want(503).naming("retry")
}

func TestATokenOfALaterEpochThanTheUsersIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"ADMIN"}`).want(201)
	old := s.as(s.login("bob", "correct horse"))
	before, _ := s.view.Snapshot().Users.Get("bob")
	lost := s.as(old.do("PATCH", "/api/v1/users/bob", `{"password":"battery staple"}`).want(200).field("token").(string))
	now, _ := s.view.Snapshot().Users.Get("bob")
	s.commit(store.Replace(keys.User("bob"), *before, now.ModRev)) // as restored from a backup of etcd
	lost.do("GET", "/api/v1/auth/me", nil).want(401)
	old.do("GET", "/api/v1/auth/me", nil).want(200)
}
