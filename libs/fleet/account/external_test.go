package account_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet/account"
)

func TestParseGroupRoles(t *testing.T) {
	got, wrong := account.ParseGroupRoles([]string{"admins=admin", "cn=ops,dc=example=OPERATOR"})
	want := []account.GroupRole{{Group: "admins", Role: "ADMIN"}, {Group: "cn=ops,dc=example", Role: "OPERATOR"}}
	if diff := cmp.Diff(want, got); diff != "" || wrong != "" {
		t.Errorf("%s, %q", diff, wrong)
	}
	for _, bad := range []string{"", "=", "admins", "admins=", "=ADMIN"} {
		if _, wrong := account.ParseGroupRoles([]string{"a=B", bad}); wrong != bad {
			t.Errorf("%q: wrong is %q", bad, wrong)
		}
	}
}

func TestTheFirstGroupInTheSettingGivesTheRole(t *testing.T) {
	roles := []account.GroupRole{{Group: "admins", Role: "ADMIN"}, {Group: "staff", Role: "VIEWER"}}
	for _, c := range []struct {
		groups []string
		want   string
		ok     bool
	}{
		{[]string{"staff", "admins"}, "ADMIN", true},
		{[]string{"staff"}, "VIEWER", true},
		{[]string{"Admins"}, "", false},
		{nil, "", false},
	} {
		if got, ok := account.RoleOf(roles, c.groups); got != c.want || ok != c.ok {
			t.Errorf("%v: %q, %v", c.groups, got, ok)
		}
	}
}
