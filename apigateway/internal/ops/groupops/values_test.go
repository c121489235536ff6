package groupops

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestKeepHidden(t *testing.T) {
	secret := map[string]content.Visibility{"motd": content.VisibleToNobody}
	cases := []struct {
		name           string
		given, present map[string]string
		before         map[string]content.Visibility
		most           content.Visibility
		want           map[string]string
		denied         bool
	}{
		{"visible values follow the caller", map[string]string{"a": "new"}, map[string]string{"a": "old"}, nil, content.VisibleToAll, map[string]string{"a": "new"}, false},
		{"visible values can be removed", nil, map[string]string{"a": "old"}, nil, content.VisibleToAll, nil, false},
		{"secrets can be replaced", map[string]string{"motd": "new"}, map[string]string{"motd": "old"}, secret, content.VisibleToAll, map[string]string{"motd": "new"}, false},
		{"hidden values stay when left out", nil, map[string]string{"a": "old"}, map[string]content.Visibility{"a": content.VisibleToAdmins}, content.VisibleToAll, map[string]string{"a": "old"}, false},
		{"hidden values stay for the placeholder", map[string]string{"a": content.Hidden}, map[string]string{"a": "old"}, map[string]content.Visibility{"a": content.VisibleToAdmins}, content.VisibleToAll, map[string]string{"a": "old"}, false},
		{"hidden values cannot be changed", map[string]string{"a": "new"}, map[string]string{"a": "old"}, map[string]content.Visibility{"a": content.VisibleToAdmins}, content.VisibleToAll, nil, true},
		{"hidden values cannot be guessed", map[string]string{"a": "old"}, map[string]string{"a": "old"}, map[string]content.Visibility{"a": content.VisibleToAdmins}, content.VisibleToAll, nil, true},
		{"admins may change hidden values", map[string]string{"a": "new"}, map[string]string{"a": "old"}, map[string]content.Visibility{"a": content.VisibleToAdmins}, content.VisibleToAdmins, map[string]string{"a": "new"}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := keepHidden(c.given, c.present, c.before, c.most)
			if errs.Is(err, errs.Denied) != c.denied || !c.denied && err != nil {
				t.Fatalf("err = %v, want Denied: %t", err, c.denied)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("values (-want +got):\n%s", d)
			}
		})
	}
}

func TestAsWrittenRenamesFieldsAndRemovesDuplicates(t *testing.T) {
	problems := []error{errs.Field("portRange[0]", "is taken"), errs.Field("portRange[1]", "is taken"), errs.Field("name", "is too long")}
	written := func(field string) string {
		if field == "name" {
			return "groupName"
		}
		return "ports"
	}
	var got []string
	for _, p := range asWritten(written, problems) {
		got = append(got, errs.FieldOf(p)+" "+errs.MessageOf(p))
	}
	if d := cmp.Diff([]string{"ports is taken", "groupName is too long"}, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}
