package account

import "strings"

// ExternalUser is a user as a login provider describes it.
type ExternalUser struct {
	// Issuer is the URL of the provider, and Subject the user's ID there. Together they are unique
	// and never change.
	Issuer, Subject string
	// Username is the user's name there, in lower case. It may change.
	Username string
	// Email is an address that the provider has verified, or empty.
	Email  string
	Groups []string
}

// GroupRole gives the users of a provider's group a role.
type GroupRole struct{ Group, Role string }

// ParseGroupRoles reads texts such as admins=ADMIN. wrong is the first that is not of this form.
func ParseGroupRoles(texts []string) (out []GroupRole, wrong string) {
	for _, text := range texts {
		at := strings.LastIndex(text, "=") // groups may have it in their names, roles cannot
		if at <= 0 || at == len(text)-1 {
			return nil, text
		}
		out = append(out, GroupRole{Group: text[:at], Role: strings.ToUpper(text[at+1:])})
	}
	return out, ""
}

// RoleOf returns the role of the first entry whose group is among groups. ok is false if there is
// none.
func RoleOf(roles []GroupRole, groups []string) (role string, ok bool) {
	for _, r := range roles {
		for _, g := range groups {
			if g == r.Group {
				return r.Role, true
			}
		}
	}
	return "", false
}
