package fleet

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestPatchPathsAreRead(t *testing.T) {
	key := func(s string) PatchStep { return PatchStep{Key: s} }
	index := func(n int) PatchStep { return PatchStep{Index: n, IsIndex: true} }
	cases := map[string][]PatchStep{
		"a":                 {key("a")},
		"a.b-c.d e":         {key("a"), key("b-c"), key("d e")},
		"a[0][12].b":        {key("a"), index(0), index(12), key("b")},
		"[1].a":             {index(1), key("a")},
		`a."b.c".d`:         {key("a"), key("b.c"), key("d")},
		`"a[0]"[0]`:         {key("a[0]"), index(0)},
		`"q\"\\x"`:          {key(`q"\x`)},
		`""`:                {key("")},
		"listeners[0].host": {key("listeners"), index(0), key("host")},
	}
	for path, want := range cases {
		got, err := ParsePatchPath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	for _, path := range []string{"", ".", "a.", ".a", "a..b", "a[", "a[x]", "a[-1]", "a[10001]", "a[99999999999999999999]", "a]b", `"a`, `a"b"`, `"a"b`, "a.[0]", strings.Repeat("a.", 64) + "a"} {
		if steps, err := ParsePatchPath(path); err == nil {
			t.Errorf("%q is read as %v", path, steps)
		}
	}
}

func FuzzPatchPath(f *testing.F) {
	for _, path := range []string{`a.b[0]."c.d"`, `"\"`, "[", "..", "a[1]b"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		steps, err := ParsePatchPath(path)
		if (err == nil) == (len(steps) == 0) {
			t.Fatalf("%q: %v, %v", path, steps, err)
		}
	})
}

func TestPatchesAreValidated(t *testing.T) {
	cases := []struct {
		name  string
		patch ConfigPatch
		want  string
	}{
		{"outside", ConfigPatch{File: "../a.yml", Path: "a", Op: PatchSet, Value: json.RawMessage("1")}, "leaves the instance's directory"},
		{"no value", ConfigPatch{File: "a.yml", Path: "a", Op: PatchSet}, "needs a value"},
		{"no operation", ConfigPatch{File: "a.yml", Path: "a", Value: json.RawMessage("1")}, "op must be SET, REPLACE or REGEX"},
		{"no path", ConfigPatch{File: "a.yml", Op: PatchReplace, Value: json.RawMessage("1")}, "path"},
		{"a regex of a number", ConfigPatch{File: "a.yml", Path: "a", Op: PatchRegex, Value: json.RawMessage("1")}, "must be a string"},
		{"a regex with a group that is not there", ConfigPatch{File: "a.yml", Path: "(a)", Op: PatchRegex, Value: json.RawMessage(`"$2"`)}, "names no group"},
		{"no regex", ConfigPatch{File: "a.yml", Path: "(", Op: PatchRegex, Value: json.RawMessage(`""`)}, "is no regular expression"},
		{"a costly regex", ConfigPatch{File: "a.yml", Path: "(.*x){1,900}y", Op: PatchRegex, Value: json.RawMessage(`""`)}, "is too large"},
		{"good", ConfigPatch{File: "**/a.yml", Path: "a.b", Op: PatchSet, Value: json.RawMessage("null")}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spec := DefaultSpec()
			spec.ConfigRules = []ConfigPatch{c.patch}
			var said []string
			for _, err := range spec.Validate() {
				said = append(said, errs.FieldOf(err)+": "+err.Error())
			}
			if all := strings.Join(said, "; "); !strings.Contains(all, c.want) || c.want == "" && all != "" || c.want != "" && !strings.Contains(all, "configRules[0]") {
				t.Errorf("it says %q, want %q of configRules[0]", all, c.want)
			}
		})
	}
}

func TestAReplacementHasTheSyntaxOfJava(t *testing.T) {
	expr := regexp.MustCompile(`(a)(?P<name>b)`)
	for _, c := range []struct{ value, want string }{
		{`$1O`, "aO"},
		{`$10`, "a0"},
		{`$0-$2$1`, "ab-ba"},
		{`${name}s`, "bs"},
		{`${1}s`, "as"},
		{`\$1`, "$1"},
		{`\\$1`, `\a`},
		{`a\b`, "ab"},
		{`$`, "?"},
		{`$$`, "?"},
		{`$name`, "?"},
		{`$3`, "?"},
		{`${other}`, "?"},
		{`${1`, "?"},
		{`x\`, "?"},
	} {
		value, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		got := "?"
		if parts, err := (ConfigPatch{Value: value}).Replacement(expr); err == nil {
			got = ""
			for _, part := range parts {
				if part.Group == NoGroup {
					got += part.Text
				} else {
					got += []string{"ab", "a", "b"}[part.Group]
				}
			}
			again, err := json.Marshal(parts.String())
			if err != nil {
				t.Fatal(err)
			}
			if read, err := (ConfigPatch{Value: again}).Replacement(expr); err != nil || !cmp.Equal(read, parts) {
				t.Errorf("%s is written as %s, which is %v, %v", c.value, again, read, err)
			}
		}
		if got != c.want {
			t.Errorf("%s gives %q, want %q", c.value, got, c.want)
		}
	}
}

func TestPatchesByFileComeFirstAndInOrder(t *testing.T) {
	spec := DefaultSpec()
	one := json.RawMessage("1")
	spec.Composition.ConfigPatches = map[string]map[string]json.RawMessage{"b.yml": {"y": one, "x": one}, "a.yml": {"z": one}}
	spec.ConfigRules = []ConfigPatch{{File: "z.txt", Path: "a", Op: PatchRegex, Value: json.RawMessage(`"b"`)}, {File: "a.yml", Path: "a", Op: PatchReplace, Value: one}}
	if errs := spec.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	var got []string
	for _, p := range Compose(Group{Spec: spec}, Materials{}, 0).Patches {
		got = append(got, p.File+" "+p.Path+" "+string(p.Op))
	}
	want := []string{"a.yml z SET", "b.yml x SET", "b.yml y SET", "z.txt a REGEX", "a.yml a REPLACE"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
