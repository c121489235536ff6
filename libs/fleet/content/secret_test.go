package content_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestParseSecretRef(t *testing.T) {
	for _, c := range []struct {
		value string
		ref   bool
		want  content.SecretRef // zero if it is invalid
	}{
		{"secret:db", true, content.SecretRef{Kind: content.SecretStored, Of: "db"}},
		{"secret:db.main#user-1", true, content.SecretRef{Kind: content.SecretStored, Of: "db.main", Key: "user-1"}},
		{"file:db/password", true, content.SecretRef{Kind: content.SecretFile, Of: "db/password"}},
		{"env:ORRERY_SECRET_DB", true, content.SecretRef{Kind: content.SecretEnv, Of: "ORRERY_SECRET_DB"}},
		{"sealed:eA", true, content.SecretRef{Kind: content.SecretSealed, Of: "eA"}},
		{"secret:", true, content.SecretRef{}},
		{"secret:#", true, content.SecretRef{}},
		{"secret:db#", true, content.SecretRef{}},
		{"secret:../x", true, content.SecretRef{}},
		{"secret:a..b", true, content.SecretRef{}},
		{"secret:group/lobby/DB", true, content.SecretRef{}},
		{"secret:" + strings.Repeat("x", 65), true, content.SecretRef{}},
		{"file:", true, content.SecretRef{}},
		{"file:../x", true, content.SecretRef{}},
		{"file:a/../../x", true, content.SecretRef{}},
		{"file:/etc/shadow", true, content.SecretRef{}},
		{"file:a//b", true, content.SecretRef{}},
		{"file:./a", true, content.SecretRef{}},
		{"file:a\nb", true, content.SecretRef{}},
		{"env:", true, content.SecretRef{}},
		{"env:A=B", true, content.SecretRef{}},
		{"sealed:", true, content.SecretRef{}},
		{"hunter2", false, content.SecretRef{}},
		{"a:b", false, content.SecretRef{}},
		{"Secret:db", false, content.SecretRef{}},
		{"", false, content.SecretRef{}},
	} {
		got, err := content.ParseSecretRef(c.value)
		if got != c.want || (err == nil) != (c.want != content.SecretRef{}) || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %+v, %v", c.value, got, err)
		}
		if content.RefersToSecret(c.value) != c.ref {
			t.Errorf("%q: taken for a reference: %v", c.value, !c.ref)
		}
	}
	sealed, _ := content.ParseSecretRef("sealed:eA")
	if strings.Contains(sealed.String(), "eA") {
		t.Errorf("what is sealed is told: %s", sealed)
	}
}

func FuzzSecretRef(f *testing.F) {
	for _, s := range []string{"secret:a#b", "file:a/b", "env:X", "sealed:x", "file:..", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := content.ParseSecretRef(s)
		if err != nil {
			return
		}
		if !content.RefersToSecret(s) {
			t.Errorf("%q is a reference and does not look like one", s)
		}
		if r.Kind == content.SecretFile && (strings.HasPrefix(r.Of, "/") || strings.Contains("/"+r.Of+"/", "/../")) {
			t.Errorf("%q leads out", s)
		}
		if again, err := content.ParseSecretRef(r.String()); r.Kind != content.SecretSealed && (err != nil || again != r) {
			t.Errorf("%q is read as %+v, which is read as %+v, %v", s, r, again, err)
		}
	})
}

func TestSecretLimits(t *testing.T) {
	one := map[string]string{"": "hunter2"}
	many := map[string]string{}
	for i := range content.MaxSecretKeys + 1 {
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
		{"too large", "db", map[string]string{"": strings.Repeat("x", content.MaxSecretBytes+1)}, "values"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			problems := content.ValidateSecret(c.name, c.values)
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
