package configfile

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePatchPath(t *testing.T) {
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

func TestReplacementUsesJavaSyntax(t *testing.T) {
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
