package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/orreryhq/orrery/apigateway"
	"github.com/orreryhq/orrery/libs/errs"
)

// oidcFlags adds the flags of the login provider. check reads its secret, and returns what is wrong.
func oidcFlags(fs *flag.FlagSet, o *apigateway.OIDC) (check func() error) {
	var secretFile string
	fs.StringVar(&o.Issuer, "oidc-issuer", "", "`URL` of an OpenID Connect provider whose users may log in; empty: none")
	fs.StringVar(&o.ClientID, "oidc-client-id", "", "`name` that the provider knows this program by")
	fs.StringVar(&secretFile, "oidc-client-secret-file", "", "`file` with the secret of that client")
	fs.StringVar(&o.UsernameClaim, "oidc-username-claim", "preferred_username", "`claim` of ID tokens with the name of a new user")
	fs.StringVar(&o.GroupsClaim, "oidc-groups-claim", "groups", "`claim` of ID tokens with the groups of the user")
	fs.StringVar(&o.RedirectURL, "oidc-redirect-url", "", "`URL` of the callback as browsers reach it, ending in /api/v1/auth/oidc/callback; empty: derived from -listen")
	for _, l := range []listFlag{
		{"oidc-scopes", "`scopes` to request, separated by commas; empty: openid, profile, email and groups", &o.Scopes},
		{"oidc-roles", "`roles` that the users of groups get, as GROUP=ROLE, separated by commas; the first whose group a user has counts", &o.Roles},
	} {
		fs.Func(l.name, l.usage, func(s string) error {
			*l.into = append(*l.into, strings.FieldsFunc(s, func(c rune) bool { return c == ',' })...)
			return nil
		})
	}
	return func() error {
		if secretFile != "" {
			content, err := os.ReadFile(secretFile)
			if err != nil {
				return fmt.Errorf("-oidc-client-secret-file: %w", err)
			}
			o.ClientSecret = strings.TrimRight(string(content), "\r\n")
		}
		var wrong []error
		for _, problem := range o.Problems() {
			wrong = append(wrong, fmt.Errorf("-oidc-%s %s", errs.FieldOf(problem), errs.MessageOf(problem)))
		}
		return errors.Join(wrong...)
	}
}
