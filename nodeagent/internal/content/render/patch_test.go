package render_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

func patch(op configfile.PatchOp, path, value string) configfile.ConfigPatch {
	return configfile.ConfigPatch{File: "**", Path: path, Op: op, Value: json.RawMessage(value)}
}

func TestPatch(t *testing.T) {
	const set, replace, regex = configfile.PatchSet, configfile.PatchReplace, configfile.PatchRegex
	cases := []struct {
		name, file, in string
		patches        []configfile.ConfigPatch
		want           string
		note           string
	}{
		{"yaml: comments of a changed value stay", "a.yml", "# h\na:\n  b: 1 # why\n  c: 2\n", []configfile.ConfigPatch{patch(set, "a.b", "5")}, "# h\na:\n  b: 5 # why\n  c: 2\n", ""},
		{"yaml: set creates parents", "a.yml", "a: 1\n", []configfile.ConfigPatch{patch(set, "b.c.d", `"x"`)}, "a: 1\nb:\n  c:\n    d: x\n", ""},
		{"yaml: an index", "a.yml", "l:\n  - p: 1\n  - p: 2\n", []configfile.ConfigPatch{patch(set, "l[1].p", "3")}, "l:\n  - p: 1\n  - p: 3\n", ""},
		{"yaml: an index one past the end appends", "a.yml", "l: [1]\n", []configfile.ConfigPatch{patch(set, "l[1]", "2"), patch(set, "m[0].k", "true")}, "l: [1, 2]\nm:\n  - k: true\n", ""},
		{"yaml: a key with dots", "a.yml", "h:\n  a.b: 1\n", []configfile.ConfigPatch{patch(set, `h."a.b"`, "2")}, "h:\n  a.b: 2\n", ""},
		{"yaml: replace skips missing keys", "a.yml", "a: 1\n", []configfile.ConfigPatch{patch(replace, "b", "2")}, "a: 1\n", "a.yml has nothing to replace at b"},
		{"yaml: replace of an existing key", "a.yml", "a: 1\n", []configfile.ConfigPatch{patch(replace, "a", "null")}, "a: null\n", ""},
		{"yaml: a quoted number stays a string", "a.yml", "a: x\n", []configfile.ConfigPatch{patch(set, "a", `"25565"`)}, "a: \"25565\"\n", ""},
		{"yaml: an object in place of null", "a.yml", "a:\n", []configfile.ConfigPatch{patch(set, "a.b", "1")}, "a:\n  b: 1\n", ""},
		{"yaml: a file of comments", "a.yml", "# x\n", []configfile.ConfigPatch{patch(set, "a", "1")}, "a: 1\n", ""},
		{"yaml: a number as a key", "a.yml", "1: a\n", []configfile.ConfigPatch{patch(set, "1", `"b"`)}, "1: b\n", ""},
		{"json: digits stay", "a.json", `{"id":123456789012345678901}`, []configfile.ConfigPatch{patch(set, "n", "98765432109876543210")}, "{\n  \"id\": 123456789012345678901,\n  \"n\": 98765432109876543210\n}\n", ""},
		{"json: a missing file", "a.json", "", []configfile.ConfigPatch{patch(set, "a", "{}")}, "{\n  \"a\": {}\n}\n", ""},
		{"toml", "a.toml", "[a]\nb = 1\n", []configfile.ConfigPatch{patch(set, "a.b", "1.5"), patch(set, "c", `["x"]`)}, "c = ['x']\n\n[a]\nb = 1.5\n", ""},
		{"properties: the path is the key", "server.properties", "# h\nquery.port=1\nmotd=x\n", []configfile.ConfigPatch{patch(set, "query.port", "2"), patch(set, "a b", `"c\nd"`)}, "# h\nquery.port=2\nmotd=x\na\\ b=c\\nd\n", ""},
		{"properties: replace", "a.properties", "a=1\n", []configfile.ConfigPatch{patch(replace, "b", "1"), patch(replace, "a", "true")}, "a=true\n", "a.properties has nothing to replace at b"},
		{"regex: every match, with groups, lines are lines", "a.conf", "port 1\nport 2\n", []configfile.ConfigPatch{patch(regex, `^port (\d)$`, `"port ${1}0"`)}, "port 10\nport 20\n", ""},
		{"regex: digits name an existing group", "a.conf", "port 1", []configfile.ConfigPatch{patch(regex, `port (\d)`, `"port $1O$10"`)}, "port 1O10", ""},
		{"regex: no match", "a.conf", "x", []configfile.ConfigPatch{patch(regex, "y", `""`)}, "x", "a.conf has no match for y"},
		{"patches are applied in order", "a.yml", "a: 1\n", []configfile.ConfigPatch{patch(set, "a", "2"), patch(regex, "a: 2", `"b: 2"`), patch(set, "b", "3")}, "b: 3\n", ""},
		{"yaml: a value that is set keeps the bytes", "a.yml", "# h\na:    'x'   # y\nl:   [ 1,2 ]\nf:  1.50\nm: {b: 1,  c: ~}\nx: &x {k: 1}\ny: *x\n\n\n", []configfile.ConfigPatch{
			patch(set, "a", `"x"`), patch(replace, "l", "[1,2]"), patch(set, "l[1]", "2"), patch(set, "f", "1.5"), patch(set, "m", `{"c":null,"b":1}`), patch(set, "y.k", "1"),
		}, "# h\na:    'x'   # y\nl:   [ 1,2 ]\nf:  1.50\nm: {b: 1,  c: ~}\nx: &x {k: 1}\ny: *x\n\n\n", ""},
		{"json: a value that is set keeps the bytes", "a.json", `{ "a" : [1 , {"b":1.0}], "n":null}`, []configfile.ConfigPatch{patch(set, "a", `[1,{"b":1.00}]`), patch(replace, "n", "null")}, `{ "a" : [1 , {"b":1.0}], "n":null}`, ""},
		{"toml: a value that is set keeps the bytes", "a.toml", "# why\n[a]\nb   = 1.0 # c\nd = 1_000\n", []configfile.ConfigPatch{patch(set, "a.b", "1.0"), patch(replace, "a.d", "1000")}, "# why\n[a]\nb   = 1.0 # c\nd = 1_000\n", ""},
		{"properties: a value that is set keeps the bytes", "a.properties", "a : x\\\r\n  y\r\n\r\nb=\\u0031", []configfile.ConfigPatch{patch(set, "a", `"xy"`), patch(replace, "b", "1")}, "a : x\\\r\n  y\r\n\r\nb=\\u0031", ""},
		{"regex: a value that is set keeps the bytes", "a.yml", "a:   1 # x", []configfile.ConfigPatch{patch(regex, `a: +\d`, `"a:   1"`)}, "a:   1 # x", ""},
		{"a string is no number", "a.yml", "a: 1\nb: \"1\"\n", []configfile.ConfigPatch{patch(set, "a", `"1"`), patch(set, "b", "1")}, "a: \"1\"\nb: 1\n", ""},
		{"null for a missing key", "a.yml", "a: 1\n", []configfile.ConfigPatch{patch(set, "b.c", "null")}, "a: 1\nb:\n  c: null\n", ""},
		{"one value set already and a new one", "a.json", `{"a":1}`, []configfile.ConfigPatch{patch(set, "a", "1"), patch(set, "b", "2")}, "{\n  \"a\": 1,\n  \"b\": 2\n}\n", ""},
		{"properties: other lines keep their endings", "a.properties", "a=1\r\nb=2", []configfile.ConfigPatch{patch(set, "a", "3"), patch(set, "c", "4")}, "a=3\r\nb=2\r\nc=4\r\n", ""},
		{"nothing to change keeps the bytes", "a.json", `{ "a" : 1}`, []configfile.ConfigPatch{patch(replace, "b", "1")}, `{ "a" : 1}`, "a.json has nothing to replace at b"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, notes, err := render.Patch(c.file, []byte(c.in), c.patches)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("patched (-want +got):\n%s", diff)
			}
			if c.note != "" && !slices.Contains(notes, c.note) || c.note == "" && len(notes) > 0 {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

func TestPatchErrorsNameTheFile(t *testing.T) {
	const set, regex = configfile.PatchSet, configfile.PatchRegex
	cases := []struct {
		name, file, in string
		patch          configfile.ConfigPatch
		want           string
	}{
		{"a broken file", "a.yml", "a: [", patch(set, "a", "1"), "is not valid YAML"},
		{"no structure", "a.conf", "a", patch(set, "a", "1"), "has no known structure"},
		{"a key of a list", "a.yml", "a: []", patch(set, "a.b", "1"), `"b" needs a mapping`},
		{"an index of a mapping", "a.yml", "a: {x: 1}", patch(set, "a[0]", "1"), "[0] needs a list"},
		{"a gap", "a.yml", "a: []", patch(set, "a[2]", "1"), "would leave a gap"},
		{"null in TOML", "a.toml", "", patch(set, "a", "null"), "has null, which TOML does not support"},
		{"a list in properties", "a.properties", "", patch(set, "a", "[]"), "must be a string"},
		{"unlimited growth", "a.txt", strings.Repeat("x", 1<<10), patch(regex, "x", `"`+strings.Repeat("y", 20<<10)+`"`), "would be larger than 16 MiB"},
		{"unlimited growth of one match", "a.txt", strings.Repeat("x", 1<<20), patch(regex, "x+", `"`+strings.Repeat("$0", 100_000)+`"`), "would be larger than 16 MiB"},
		{"too many matches", "a.txt", strings.Repeat("x", 200_000), patch(regex, "x", `"y"`), "has more than 100000 matches"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := render.Patch(c.file, []byte(c.in), []configfile.ConfigPatch{c.patch})
			if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), c.want) || !strings.HasPrefix(errs.MessageOf(err), c.file) {
				t.Errorf("error %v, want one of %s that says %q", err, c.file, c.want)
			}
		})
	}
}

func TestEditReplacesPlaceholdersBeforePatches(t *testing.T) {
	rules := render.Rules{
		Listed: []string{"*.properties"}, Values: map[string]string{"PORT": "25570", "NAME": `a "b"`},
		Patches: []configfile.ConfigPatch{
			{File: "server.properties", Path: "motd", Op: configfile.PatchSet, Value: json.RawMessage(`"%NAME% %GONE%"`)},
			{File: "**/*.yml", Path: "a", Op: configfile.PatchSet, Value: json.RawMessage(`["%PORT%",1]`)},
		},
	}
	got, err := rules.Edit("server.properties", []byte("port=%PORT%\nx=%LOST%\n"))
	if err != nil || string(got.Content) != "port=25570\nx=%LOST%\nmotd=a \"b\" %GONE%\n" || !got.Changed {
		t.Errorf("edited: %q, %v", got.Content, err)
	}
	slices.Sort(got.Unknown)
	if diff := cmp.Diff([]string{"GONE", "LOST"}, got.Unknown); diff != "" {
		t.Error(diff)
	}
	if got, err = rules.Edit("deep/a.yml", []byte("p: %PORT%x\n")); err == nil {
		t.Errorf("an invalid YAML file was patched: %q", got.Content)
	}
	if got, err = rules.Edit("deep/a.yml", []byte("b: 1\n")); err != nil || string(got.Content) != "b: 1\na:\n  - \"25570\"\n  - 1\n" {
		t.Errorf("edited: %q, %v", got.Content, err)
	}
}

func TestValuesInRegexPatchesAreLiteral(t *testing.T) {
	for _, value := range []string{"a$b", `C:\new\table`, "$0 and ${name}", `end\`, "$", "0"} {
		for rule, want := range map[string]string{`"%V%"`: value, `"$1%V%"`: "x" + value, `"\\%V%$1"`: value + "x"} {
			p := patch(configfile.PatchRegex, "(?P<name>x)()()()()()()()()()", rule)
			p.File = "a.txt"
			got, err := render.Rules{Patches: []configfile.ConfigPatch{p}, Values: map[string]string{"V": value}}.Edit("a.txt", []byte("x"))
			if err != nil || string(got.Content) != want {
				t.Errorf("%s with %q: %q, %v, want %q", rule, value, got.Content, err, want)
			}
		}
	}
}

func TestBinaryFilesAreSkippedUnlessNamed(t *testing.T) {
	byGlob := render.Rules{Patches: []configfile.ConfigPatch{patch(configfile.PatchRegex, "a", `"b"`)}}
	got, err := byGlob.Edit("a.bin", []byte("a\x00"))
	if err != nil || got.Changed || !slices.Equal(got.Notes, []string{"a.bin was not changed: not text"}) {
		t.Errorf("by a glob: %+v, %v", got, err)
	}
	named := byGlob
	named.Patches[0].File = "a.bin"
	if _, err := named.Edit("a.bin", []byte("a\x00")); !errs.Is(err, errs.Invalid) {
		t.Errorf("named: %v", err)
	}
}

func FuzzPatch(f *testing.F) {
	for _, file := range []string{"a.yml", "a.json", "a.toml", "a.properties", "a.txt"} {
		f.Add(file, []byte("a: {b: [1]}\n"), "a.b[0]", []byte(`{"x":"%A%"}`), byte(0))
		f.Add(file, []byte(`{"a":1}`), `"a"`, []byte(`"$1"`), byte(2))
	}
	f.Fuzz(func(t *testing.T, file string, content []byte, path string, value []byte, op byte) {
		spec := fleet.DefaultSpec()
		spec.ConfigRules = []configfile.ConfigPatch{{File: file, Path: path, Op: []configfile.PatchOp{configfile.PatchSet, configfile.PatchReplace, configfile.PatchRegex}[op%3], Value: value}}
		if len(spec.Validate()) > 0 || render.IsGlob(file) {
			return
		}
		rules := render.Rules{Patches: spec.ConfigRules, Values: map[string]string{"A": "1"}}
		e, err := rules.Edit(file, content)
		if err != nil && !errs.Is(err, errs.Invalid) {
			t.Fatalf("error %v is not Invalid", err)
		}
		if err != nil || op%3 == 2 || !e.Changed {
			return
		}
		again, err := rules.Edit(file, e.Content)
		if err != nil || string(again.Content) != string(e.Content) {
			t.Fatalf("patched once more it changes: %v\n%q\n%q", err, e.Content, again.Content)
		}
	})
}
