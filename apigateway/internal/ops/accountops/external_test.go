package accountops

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

func TestAdmit(t *testing.T) {
	const issuer = "https://login.example.org"
	roles := []account.GroupRole{{Group: "admins", Role: "ADMIN"}, {Group: "staff", Role: "VIEWER"}}
	ann := &account.User{Username: "ann", Issuer: issuer, Subject: "1"}
	local := &account.User{Username: "ann", PasswordHash: "x"}
	other := &account.User{Username: "ann", Issuer: issuer, Subject: "2"}
	for name, c := range map[string]struct {
		username, groups  string
		bySubject, byName *account.User
		create            bool
		role, says        string
	}{
		"a first login creates the user":                           {"ann", "staff", nil, nil, true, "VIEWER", ""},
		"a later login takes the user of the subject":              {"ann", "staff admins", ann, ann, false, "ADMIN", ""},
		"a user who was renamed at the provider is known":          {"anne", "staff", ann, nil, false, "VIEWER", ""},
		"a new name that a local user has does not matter":         {"ann", "staff", other, local, false, "VIEWER", ""},
		"a local user is not taken over":                           {"ann", "staff", nil, local, false, "", "local user ann"},
		"nor is the user of another account":                       {"ann", "staff", nil, other, false, "", "another account"},
		"nor is a service account":                                 {"ann", "staff", nil, &account.User{Username: "ann", Service: true}, false, "", "service account"},
		"groups without a role are refused":                        {"ann", "guests", ann, ann, false, "", "no group of the user ann"},
		"no groups are refused":                                    {"ann", "", nil, nil, false, "", "names no groups"},
		"a name that no user can have is refused":                  {"ann@example.org", "staff", nil, nil, false, "", "oidc.username-claim"},
		"such a name does not matter after the first login":        {"ann@example.org", "staff", ann, nil, false, "VIEWER", ""},
		"an empty name is refused":                                 {"", "staff", nil, nil, false, "", "oidc.username-claim"},
		"the reason is the role even if a local user has the name": {"ann", "guests", nil, local, false, "", "no group of the user ann"},
	} {
		x := account.ExternalUser{Issuer: issuer, Subject: "1", Username: c.username, Groups: strings.Fields(c.groups)}
		got, err := admit(x, c.bySubject, c.byName, roles)
		if c.says != "" {
			if !errs.Is(err, errs.Denied) || !strings.Contains(errs.MessageOf(err), c.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || got.create != c.create || got.role != c.role || !c.create && got.old != c.bySubject {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestAnAddressThatIsNoneIsNotKept(t *testing.T) {
	for email, want := range map[string]string{"ann@example.org": "ann@example.org", "ann": "", "Ann <ann@example.org>": "", strings.Repeat("a", 300) + "@example.org": ""} {
		if got := mailOf(account.ExternalUser{Email: email}); got != want {
			t.Errorf("%q: %q", email, got)
		}
	}
}
