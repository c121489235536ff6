package fleet_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestAReferenceToASecretIsReadOrRefused(t *testing.T) {
	for _, c := range []struct {
		value string
		ref   bool
		want  fleet.SecretRef // the zero one: it is refused
	}{
		{"secret:db", true, fleet.SecretRef{Kind: fleet.SecretStored, Of: "db"}},
		{"secret:db.main#user-1", true, fleet.SecretRef{Kind: fleet.SecretStored, Of: "db.main", Key: "user-1"}},
		{"file:db/password", true, fleet.SecretRef{Kind: fleet.SecretFile, Of: "db/password"}},
		{"env:ORRERY_SECRET_DB", true, fleet.SecretRef{Kind: fleet.SecretEnv, Of: "ORRERY_SECRET_DB"}},
		{"sealed:eA", true, fleet.SecretRef{Kind: fleet.SecretSealed, Of: "eA"}},
		{"secret:", true, fleet.SecretRef{}},
		{"secret:#", true, fleet.SecretRef{}},
		{"secret:db#", true, fleet.SecretRef{}},
		{"secret:../x", true, fleet.SecretRef{}},
		{"secret:a..b", true, fleet.SecretRef{}},
		{"secret:group/lobby/DB", true, fleet.SecretRef{}},
		{"secret:" + strings.Repeat("x", 65), true, fleet.SecretRef{}},
		{"file:", true, fleet.SecretRef{}},
		{"file:../x", true, fleet.SecretRef{}},
		{"file:a/../../x", true, fleet.SecretRef{}},
		{"file:/etc/shadow", true, fleet.SecretRef{}},
		{"file:a//b", true, fleet.SecretRef{}},
		{"file:./a", true, fleet.SecretRef{}},
		{"file:a\nb", true, fleet.SecretRef{}},
		{"env:", true, fleet.SecretRef{}},
		{"env:A=B", true, fleet.SecretRef{}},
		{"sealed:", true, fleet.SecretRef{}},
		{"hunter2", false, fleet.SecretRef{}},
		{"a:b", false, fleet.SecretRef{}},
		{"Secret:db", false, fleet.SecretRef{}},
		{"", false, fleet.SecretRef{}},
	} {
		got, err := fleet.ParseSecretRef(c.value)
		if got != c.want || (err == nil) != (c.want != fleet.SecretRef{}) || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %+v, %v", c.value, got, err)
		}
		if fleet.RefersToSecret(c.value) != c.ref {
			t.Errorf("%q: taken for a reference: %v", c.value, !c.ref)
		}
	}
	sealed, _ := fleet.ParseSecretRef("sealed:eA")
	if strings.Contains(sealed.String(), "eA") {
		t.Errorf("what is sealed is told: %s", sealed)
	}
}

func FuzzSecretRef(f *testing.F) {
	for _, s := range []string{"secret:a#b", "file:a/b", "env:X", "sealed:x", "file:..", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := fleet.ParseSecretRef(s)
		if err != nil {
			return
		}
		if !fleet.RefersToSecret(s) {
			t.Errorf("%q is a reference and does not look like one", s)
		}
		if r.Kind == fleet.SecretFile && (strings.HasPrefix(r.Of, "/") || strings.Contains("/"+r.Of+"/", "/../")) {
			t.Errorf("%q leads out", s)
		}
		if again, err := fleet.ParseSecretRef(r.String()); r.Kind != fleet.SecretSealed && (err != nil || again != r) {
			t.Errorf("%q is read as %+v, which is read as %+v, %v", s, r, again, err)
		}
	})
}

func TestASecretIsBounded(t *testing.T) {
	one := map[string]string{"": "hunter2"}
	many := map[string]string{}
	for i := range fleet.MaxSecretKeys + 1 {
		many["k"+strings.Repeat("x", i%60)+string(rune('a'+i/60))] = "v"
	}
	for _, c := range []struct {
		rule, name string
		values     map[string]string
		field      string
	}{
		{"a value", "db", one, ""},
		{"values by key", "db.main", map[string]string{"user": "a", "password": "b"}, ""},
		{"a name with a slash is reserved", "group/db", one, "name"},
		{"a name that leads out", "..", one, "name"},
		{"no value", "db", nil, "value"},
		{"an empty value", "db", map[string]string{"": ""}, "value"},
		{"a value that stands for one", "db", map[string]string{"": "***"}, "value"},
		{"a value with NUL", "db", map[string]string{"": "a\x00"}, "value"},
		{"a bad key", "db", map[string]string{"a/b": "x"}, "values"},
		{"too many", "db", many, "values"},
		{"too large", "db", map[string]string{"": strings.Repeat("x", fleet.MaxSecretBytes+1)}, "values"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			problems := fleet.ValidateSecret(c.name, c.values)
			switch {
			case c.field == "" && len(problems) > 0, c.field != "" && (len(problems) != 1 || errs.FieldOf(problems[0]) != c.field):
				t.Errorf("got %v, want %s", problems, c.field)
			}
			for _, p := range problems {
				if strings.Contains(p.Error(), "hunter2") {
					t.Errorf("the value is told: %v", p)
				}
			}
		})
	}
}

func TestAStartsReferencesWinAndAreNoPlaceholders(t *testing.T) {
	p := fleet.Plan{Secrets: map[string]string{"A": "secret:a", "B": "", "C": ""}, Variables: map[string]string{"X": "1"}}
	pl := fleet.Placement{Values: map[string]string{"A": "env:A", "B": "file:b", "X": "2"}}
	want := map[string]string{"A": "env:A", "B": "file:b"}
	if diff := cmp.Diff(want, fleet.SecretRefs(p, pl)); diff != "" {
		t.Error(diff)
	}
	all := fleet.Placeholders(fleet.PlaceholderContext{Plan: p, Placement: pl, Node: fleet.Node{Variables: map[string]string{"C": "of the node"}}})
	for _, key := range []string{"A", "B", "C"} {
		if v, ok := all[key]; ok {
			t.Errorf("%s has the value %q", key, v)
		}
	}
	if all["X"] != "2" {
		t.Errorf("X is %q", all["X"])
	}
}
