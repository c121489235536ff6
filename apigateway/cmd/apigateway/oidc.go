package main

import (
	"github.com/orreryhq/orrery/apigateway"
)

// oidcSettings are the settings of the login provider.
type oidcSettings struct {
	Issuer        string   `config:"issuer" usage:"URL of an OpenID Connect provider whose users may log in, like https://login.example.org; empty: none"`
	ClientID      string   `config:"client-id" usage:"name that the provider knows the gateways by"`
	ClientSecret  string   `config:"client-secret" secret:"true" usage:"secret of that client"`
	Scopes        []string `config:"scopes" default:"openid,profile,email,groups" usage:"scopes that are asked for"`
	UsernameClaim string   `config:"username-claim" default:"preferred_username" usage:"claim of ID tokens with the name of a new user"`
	GroupsClaim   string   `config:"groups-claim" default:"groups" usage:"claim of ID tokens with the groups of the user"`
	Roles         []string `config:"roles" usage:"role that the users of a group get, as GROUP=ROLE; the first whose group a user has counts, and users without one cannot log in"`
	RedirectURL   string   `config:"redirect-url" usage:"URL of the callback as browsers reach it, ending in /api/v1/auth/oidc/callback; empty: derived from api.url or listen"`
}

func (s oidcSettings) provider() apigateway.OIDC {
	return apigateway.OIDC{
		Issuer: s.Issuer, ClientID: s.ClientID, ClientSecret: s.ClientSecret, Scopes: s.Scopes,
		UsernameClaim: s.UsernameClaim, GroupsClaim: s.GroupsClaim, Roles: s.Roles, RedirectURL: s.RedirectURL,
	}
}

// Validate names the settings that cannot be used.
func (s oidcSettings) Validate() []error { return s.provider().Problems() }
