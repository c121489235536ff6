package apigateway

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/accounts"
	"github.com/orreryhq/orrery/apigateway/internal/auth/oidclogin"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/seal"
)

// OIDC configures an OpenID Connect provider whose users may log in. The zero value turns such
// logins off.
type OIDC struct {
	// Issuer is the provider's URL.
	Issuer string
	// ClientID and ClientSecret are what the provider knows the gateways by.
	ClientID, ClientSecret string
	// Scopes are the scopes to request. Nil means openid, profile, email and groups.
	Scopes []string
	// UsernameClaim and GroupsClaim are the claims of ID tokens with the user's name and groups. Empty
	// means preferred_username and groups.
	UsernameClaim, GroupsClaim string
	// Roles are entries such as admins=ADMIN: the first whose group a user has gives the user's role.
	Roles []string
	// RedirectURL is the URL of the callback as browsers reach it, which the provider must know. Empty
	// means accounts.OIDCCallback below Config.APIURL, or below the URL of the listener without one.
	RedirectURL string
}

// oidcPatience limits how long a call to the provider may take.
const oidcPatience = 10 * time.Second

// Problems returns what is wrong. The Field of each error is a key below oidc.
func (o OIDC) Problems() (out []error) {
	if o.Issuer == "" {
		return nil
	}
	check := func(ok bool, field, message string, args ...any) {
		if !ok {
			out = append(out, errs.Field(field, message, args...))
		}
	}
	check(isURL(o.Issuer), "issuer", "must be an http or https URL, like https://login.example.org")
	check(o.ClientID != "", "client-id", "must be set when there is an issuer")
	roles, wrong := account.ParseGroupRoles(o.Roles)
	check(wrong == "", "roles", "%q must be GROUP=ROLE, like admins=ADMIN", wrong)
	check(wrong != "" || len(roles) > 0, "roles", "must give a role to a group, like admins=ADMIN: otherwise no user of the provider can log in")
	check(o.RedirectURL == "" || isURL(o.RedirectURL) && strings.HasSuffix(o.RedirectURL, accounts.OIDCCallback), "redirect-url", "must be an http or https URL that ends in %s", accounts.OIDCCallback)
	return out
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// provider returns the login provider and the roles of its groups. apiURL returns the URL of the API.
func (o OIDC) provider(cfg *Config, box seal.Box, transport *http.Transport, apiURL func() string) (*oidclogin.Provider, []account.GroupRole, error) {
	for _, problem := range o.Problems() {
		return nil, nil, errs.Field("oidc."+errs.FieldOf(problem), "%s", errs.MessageOf(problem))
	}
	scopes := o.Scopes
	if scopes == nil {
		scopes = []string{"openid", "profile", "email", "groups"}
	}
	roles, _ := account.ParseGroupRoles(o.Roles)
	return oidclogin.New(oidclogin.Config{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, Scopes: scopes,
		UsernameClaim: cmp.Or(o.UsernameClaim, "preferred_username"), GroupsClaim: cmp.Or(o.GroupsClaim, "groups"),
		RedirectURL: func() string {
			if o.RedirectURL != "" {
				return o.RedirectURL
			}
			return strings.TrimSuffix(apiURL(), "/") + accounts.OIDCCallback
		},
		Seal: box, Client: &http.Client{Transport: transport, Timeout: oidcPatience}, Now: cfg.Now,
	}), roles, nil
}
