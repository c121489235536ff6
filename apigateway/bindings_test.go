package apigateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
)

func TestABindingIsMadeReadReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("bedwars", map[string]any{"labels": map[string]string{"game": "bedwars"}})
	s.user("mara", auth.RoleNone)
	s.do("GET", "/api/v1/bindings", nil).want(200).is("total", 0).is("data", []any{})
	made := s.do("PUT", "/api/v1/bindings/mods", `{"role":"viewer","selector":" game = bedwars,!test","subjects":["Mara","mara"]}`).want(201).
		is("name", "mods").is("role", "VIEWER").is("selector", "game=bedwars, !test").is("subjects", []string{"mara"}).is("updatedBy", "admin").
		is("permissions", []string{"groups.view", "instances.view", "instances.console", "players.view", "crashes.view", "events.stream"})
	if made.header.Get("Location") != "/api/v1/bindings/mods" {
		t.Errorf("headers %v", made.header)
	}
	mara := s.as(s.login("mara", adminPassword))
	mara.do("GET", "/api/v1/groups/bedwars", nil).want(200)
	read := s.do("GET", "/api/v1/bindings/mods", nil).want(200)
	before := s.revision()
	s.do("PUT", "/api/v1/bindings/mods", read.raw).want(200)
	s.do("PUT", "/api/v1/bindings/mods?dryRun=true", `{"role":"OPERATOR"}`).want(200).is("action", "update").is("binding", "mods").naming(`"field":"selector"`).naming(`"field":"role"`).naming(`"field":"subjects"`)
	s.do("PUT", "/api/v1/bindings/more?dryRun=true", `{"role":"OPERATOR"}`).want(200).is("action", "create")
	s.do("DELETE", "/api/v1/bindings/mods?dryRun=true", nil).want(200).is("action", "delete")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("dry runs, and a write of what was read, wrote something: %v", keys)
	}
	s.do("PUT", "/api/v1/bindings/mods", `{"role":"VIEWER","subjects":["mara"]}`).want(200).is("selector", "").naming("nodes.view")
	mara.do("GET", "/api/v1/nodes", nil).want(200)
	s.do("PUT", "/api/v1/bindings/mods", `{"role":"VIEWER","selector":"game=other","subjects":["mara"]}`).want(200)
	mara.do("GET", "/api/v1/nodes", nil).want(403)
	mara.do("GET", "/api/v1/groups/bedwars", nil).want(404)
	s.do("DELETE", "/api/v1/bindings/mods", nil).want(204)
	s.do("DELETE", "/api/v1/bindings/mods", nil).want(404)
	s.do("GET", "/api/v1/bindings/mods", nil).want(404)
	mara.do("GET", "/api/v1/groups", nil).want(403)
	s.do("GET", "/api/v1/audit?resourceType=binding", nil).want(200).is("total", 4).is("data.0.action", "binding.delete").is("data.3.action", "binding.create")
	s.do("GET", "/api/v1/history/binding/mods", nil).want(200).is("total", 4)
}

func TestABadBindingIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	before := s.revision()
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"a selector that does not parse", `{"role":"VIEWER","selector":"game in (a"}`, 422, `selector "," or ")" is missing at character 11`},
		{"a selector with two mistakes", `{"role":"VIEWER","selector":"game=a b, !"}`, 422, `selector "," is missing at character 8`},
		{"a long selector", `{"role":"VIEWER","selector":"` + strings.Repeat("a,", 600) + `a"}`, 422, "selector must have at most"},
		{"no role", `{"selector":"a"}`, 422, "role is missing"},
		{"an unknown role", `{"role":"NOBODY"}`, 422, "role NOBODY does not exist"},
		{"a role that gives nothing", `{"role":"NONE"}`, 422, "role NONE gives nothing here"},
		{"an unknown subject", `{"role":"VIEWER","subjects":["admin","eve"]}`, 422, "subjects[1] names a user that does not exist: eve"},
		{"a map as selector", `{"role":"VIEWER","selector":{"a":"b"}}`, 400, "selector"},
		{"an unknown field", `{"role":"VIEWER","users":[]}`, 400, "users"},
		{"another name", `{"name":"other","role":"VIEWER"}`, 422, "cannot be renamed"},
	} {
		if r := s.do("PUT", "/api/v1/bindings/mods", c.body).want(c.status); !strings.Contains(fmt.Sprint(r.field("error.message")), c.says) {
			t.Errorf("%s: %s", c.name, r.raw)
		}
	}
	s.do("PUT", "/api/v1/bindings/.mods", `{"role":"VIEWER"}`).want(422)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("refused bindings wrote %v", keys)
	}
}

func TestNobodyBindsMoreThanTheyHave(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("bedwars", map[string]any{"labels": map[string]string{"game": "bedwars"}})
	s.do("POST", "/api/v1/roles", `{"name":"HR","permissions":["roles.view","roles.manage","users.view","users.update","users.delete","groups.view"]}`).want(201)
	s.do("POST", "/api/v1/roles", `{"name":"LOOKER","permissions":["groups.view"]}`).want(201)
	hr := s.user("hr", "HR")
	s.user("mara", auth.RoleNone)
	hr.do("PUT", "/api/v1/bindings/mods", `{"role":"OPERATOR","selector":"game=bedwars","subjects":["hr"]}`).want(403)
	hr.do("PUT", "/api/v1/bindings/mods", `{"role":"LOOKER","selector":"game=bedwars","subjects":["mara"]}`).want(201)
	s.do("PUT", "/api/v1/bindings/mods", `{"role":"OPERATOR","selector":"game=bedwars","subjects":["mara"]}`).want(200)
	hr.do("PUT", "/api/v1/bindings/mods", `{"role":"LOOKER","selector":"game=bedwars"}`).want(403).naming("which you lack")
	hr.do("DELETE", "/api/v1/bindings/mods", nil).want(403)

	// Who could set the password of a user could act as that user.
	hr.do("PATCH", "/api/v1/users/mara", `{"password":"battery staple"}`).want(403).naming("which you lack")
	hr.do("DELETE", "/api/v1/users/mara", nil).want(403)

	// Permissions in some groups do not allow to give roles there.
	s.do("PUT", "/api/v1/bindings/all", `{"role":"ADMIN","selector":"game=bedwars","subjects":["mara"]}`).want(201)
	mara := s.as(s.login("mara", adminPassword))
	mara.do("PUT", "/api/v1/bindings/own", `{"role":"VIEWER","selector":"game=bedwars"}`).want(403)
	mara.do("PATCH", "/api/v1/groups/bedwars", `{"labels":{"game":"bedwars","tier":"1"}}`).want(403)
	mara.do("PUT", "/api/v1/groups/bedwars", `{}`).want(403)
	mara.do("POST", "/api/v1/groups", `{"name":"more","labels":{"game":"bedwars"}}`).want(403)
	mara.do("GET", "/api/v1/bindings", nil).want(403)
}

func TestABindingKeepsItsRoleAndFollowsItsUsers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("bedwars", map[string]any{"labels": map[string]string{"game": "bedwars"}})
	s.do("POST", "/api/v1/roles", `{"name":"LOOKER","permissions":["groups.view"]}`).want(201)
	s.user("mara", auth.RoleNone)
	s.do("PUT", "/api/v1/bindings/mods", `{"role":"LOOKER","selector":"game=bedwars","subjects":["mara"]}`).want(201)
	s.do("DELETE", "/api/v1/roles/LOOKER", nil).want(409).naming("the binding mods gives the role LOOKER")
	s.do("PATCH", "/api/v1/roles/LOOKER", `{"permissions":["groups.view","instances.view"]}`).want(200)

	s.do("PATCH", "/api/v1/users/mara", `{"username":"maria"}`).want(200)
	s.do("GET", "/api/v1/bindings/mods", nil).want(200).is("subjects", []string{"maria"})
	s.as(s.login("maria", adminPassword)).do("GET", "/api/v1/instances", nil).want(200)

	// Another user with the name does not inherit the binding.
	s.do("DELETE", "/api/v1/users/maria", nil).want(204)
	again := s.user("maria", auth.RoleNone)
	again.do("GET", "/api/v1/groups/bedwars", nil).want(403)
	s.do("GET", "/api/v1/bindings/mods", nil).want(200).is("subjects", []any{})
	s.do("DELETE", "/api/v1/bindings/mods", nil).want(204)
	s.do("DELETE", "/api/v1/roles/LOOKER", nil).want(204)
}

func TestARoleIsDeletedOrBoundButNotBoth(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 10 {
		s.do("POST", "/api/v1/roles", `{"name":"SHORT","permissions":["groups.view"]}`).want(201)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = s.try("PUT", "/api/v1/bindings/mods", `{"role":"SHORT"}`) })
		wg.Go(func() { _, _ = s.try("DELETE", "/api/v1/roles/SHORT", nil) })
		wg.Wait()
		_, bound := s.view.Snapshot().Bindings.Get("mods")
		_, exists := s.view.Snapshot().Roles.Get("SHORT")
		if bound && !exists {
			t.Fatal("the binding names a role that does not exist")
		}
		s.do("DELETE", "/api/v1/bindings/mods", nil)
		s.do("DELETE", "/api/v1/roles/SHORT", nil)
	}
}
