package apigateway

import (
	"fmt"
	"testing"
)

func TestAServiceAccountHasTokensAndNoLogin(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("bedwars", map[string]any{"labels": map[string]string{"game": "bedwars"}})
	s.group("lobby", nil)
	s.do("POST", "/api/v1/service-accounts?dryRun=true", `{"name":"ci"}`).want(200).is("name", "ci")
	made := s.do("POST", "/api/v1/service-accounts", `{"name":"CI"}`).want(201).is("name", "ci").is("role", "NONE").is("permissions", []any{}).is("tokens", 0)
	if made.header.Get("Location") != "/api/v1/service-accounts/ci" || made.header.Get("ETag") == "" {
		t.Errorf("headers %v", made.header)
	}
	s.do("POST", "/api/v1/service-accounts", `{"name":"ci"}`).want(409)
	s.do("POST", "/api/v1/users", `{"username":"ci","password":"correct horse","role":"VIEWER"}`).want(409)
	s.do("POST", "/api/v1/service-accounts", `{"name":"admin"}`).want(409)
	s.do("POST", "/api/v1/service-accounts", `{"name":"ci","password":"correct horse"}`).want(400)

	// It is listed apart, and has nothing that a person has.
	s.do("GET", "/api/v1/users", nil).want(200).is("total", 1)
	s.do("GET", "/api/v1/service-accounts", nil).want(200).is("total", 1)
	s.do("GET", "/api/v1/service-accounts/admin", nil).want(404)
	s.do("PATCH", "/api/v1/service-accounts/admin", `{"role":"VIEWER"}`).want(404)
	s.do("DELETE", "/api/v1/service-accounts/admin", nil).want(404)
	s.do("GET", "/api/v1/users/ci", nil).want(404)
	s.do("PATCH", "/api/v1/users/ci", `{"password":"correct horse"}`).want(404)
	s.do("DELETE", "/api/v1/users/ci", nil).want(404)
	s.do("GET", "/api/v1/users/ci/sessions", nil).want(404)
	s.do("PUT", "/api/v1/users/ci/preferences", `{"a":1}`).want(404)
	for _, password := range []string{"", "correct horse", adminPassword} {
		s.as("").do("POST", "/api/v1/auth/login", map[string]string{"username": "ci", "password": password}).want(401)
	}

	s.do("PUT", "/api/v1/bindings/ci", `{"role":"VIEWER","selector":"game=bedwars","subjects":["ci"]}`).want(201)
	token := s.as(fmt.Sprint(s.do("POST", "/api/v1/api-tokens", `{"name":"deploy","user":"ci"}`).want(201).is("user", "ci").is("scopes", nil).field("token")))
	token.do("GET", "/api/v1/auth/me", nil).want(200).is("username", "ci").is("bindings.0.selector", "game=bedwars")
	token.do("GET", "/api/v1/groups", nil).want(200).is("total", 1)
	token.do("GET", "/api/v1/groups/lobby", nil).want(404)
	s.do("GET", "/api/v1/service-accounts/ci", nil).want(200).is("tokens", 1).is("bindings.0.name", "ci")
	s.do("PATCH", "/api/v1/service-accounts/ci", `{"role":"VIEWER"}`).want(200).is("role", "VIEWER")
	token.do("GET", "/api/v1/groups/lobby", nil).want(200)
	s.do("GET", "/api/v1/history/user/ci", nil).want(200).is("total", 2)
	s.do("DELETE", "/api/v1/service-accounts/ci", nil).want(204)
	token.do("GET", "/api/v1/groups", nil).want(401)
	s.do("GET", "/api/v1/api-tokens", nil).want(200).is("total", 0)
}

func TestATokenOfAServiceAccountNeedsItsPermissions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"TOKENS","permissions":["tokens.create","groups.view"]}`).want(201)
	maker := s.user("maker", "TOKENS")
	s.do("POST", "/api/v1/service-accounts", `{"name":"weak"}`).want(201)
	s.do("POST", "/api/v1/service-accounts", `{"name":"strong","role":"VIEWER"}`).want(201)
	s.do("POST", "/api/v1/service-accounts", `{"name":"bound"}`).want(201)
	s.do("PUT", "/api/v1/bindings/bound", `{"role":"OPERATOR","selector":"game=bedwars","subjects":["bound"]}`).want(201)
	maker.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"weak"}`).want(201)
	maker.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"strong"}`).want(403).naming("which you lack")
	maker.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"strong","scopes":["groups.view"]}`).want(403)
	maker.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"bound"}`).want(403)
	s.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"maker"}`).want(422).naming("service account")
	s.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"nobody"}`).want(422)
	s.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"weak","scopes":["groups.view"]}`).want(403)
	short, _ := s.key(`{"name":"short","expiresInSeconds":60,"scopes":["tokens.create","groups.view"]}`)
	short.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"weak"}`).want(422).naming("expiresInSeconds")
	short.do("POST", "/api/v1/api-tokens", `{"name":"x","user":"weak","expiresInSeconds":30}`).want(201)
}

func TestTheLastAdministratorIsAPerson(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/service-accounts", `{"name":"robot","role":"ADMIN"}`).want(201)
	s.do("PATCH", "/api/v1/users/admin", `{"role":"VIEWER"}`).want(409)
	s.do("DELETE", "/api/v1/users/admin", nil).want(409)
	s.do("DELETE", "/api/v1/service-accounts/robot", nil).want(204)
}
