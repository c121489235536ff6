package manifest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseErrors(t *testing.T) {
	for name, c := range map[string]struct{ file, content, want string }{
		"broken YAML":                    {"a.yaml", "kind: Group\nname: a: b\n", "a.yaml:2:8: mapping values are not allowed in this context"},
		"a tab in YAML":                  {"a.yaml", "kind: Group\n\tname: a\n", "a.yaml:2:1: found a tab character that violates indentation"},
		"broken JSON":                    {"a.json", "{\"kind\": \"Group\",\n \"name\" \"a\"}", `a.json:2:9: invalid character '"' after object key`},
		"JSON that ends too early":       {"a.json", "{\"kind\": \"Group\"", "a.json:1:17: the document ends too early: a bracket or a quote is not closed"},
		"no kind":                        {"a.yaml", "name: a\n", "a.yaml:1:1: the document has no kind"},
		"no name":                        {"a.yaml", "kind: Group\n", "a.yaml:1:1: the document has no name"},
		"an empty name":                  {"a.yaml", "kind: Group\nname: \"\"\n", "a.yaml:2:1: name must be a text that is not empty"},
		"a name that is a number":        {"a.yaml", "kind: Group\nname: 123\n", `a.yaml:2:7: name must be a text: write "123" in quotes`},
		"a name that is a number (JSON)": {"a.json", `{"kind":"Group","name":123}`, `a.json:1:24: name must be a text: write "123" in quotes`},
		"a name that is true":            {"a.yaml", "kind: Group\nname: true\n", `a.yaml:2:7: name must be a text: write "true" in quotes`},
		"a kind that almost exists":      {"a.yaml", "kind: Gruop\nname: a\n", `a.yaml:1:7: there is no kind "Gruop"; did you mean Group?`},
		"a kind that is not declared":    {"a.yaml", "kind: Instance\nname: a\n", "a.yaml:1:7: instances cannot be declared; the kinds are Group, Node, Network, Schedule, Overlay, Source, Quota, Notice, Role"},
		"a field that almost exists":     {"a.yaml", "kind: Group\nname: a\nminInstance: 3\n", "a.yaml:3:1: group has no field minInstance; did you mean minInstances?"},
		"a nested field":                 {"a.yaml", "kind: Group\nname: a\nlimits:\n  procesess: 3\n", "a.yaml:4:3: limits has no field limits.procesess; did you mean processes?"},
		"a field in a list":              {"a.yaml", "kind: Schedule\nname: a\nwarnings:\n- beforeSecond: 3\n", "a.yaml:4:3: warnings[0] has no field warnings[0].beforeSecond; did you mean beforeSeconds?"},
		"a version that is a number":     {"a.yaml", "kind: Group\nname: a\nplatformVersion: 1.20\n", `a.yaml:3:18: platformVersion must be a text: write "1.20" in quotes`},
		"a variable that is a number":    {"a.yaml", "kind: Group\nname: a\nenv: {PORT: 80}\n", `a.yaml:3:13: env.PORT must be a text: write "80" in quotes`},
		"a key twice in YAML":            {"a.yaml", "kind: Group\nname: a\nname: b\n", "a.yaml:3:1: name is set twice, first in line 2"},
		"a key twice in JSON":            {"a.json", "{\"kind\":\"Group\",\n\"name\":\"a\",\n\"name\":\"b\"}", "a.json:3:1: name is set twice, first in line 2"},
		"an octal number":                {"a.yaml", "kind: Group\nname: a\nmaxPlayers: 010\n", `a.yaml:3:13: programs read the number 010 differently: write "010" for a text, 10 for a decimal number, or 0o10 for an octal one`},
		"infinity":                       {"a.yaml", "kind: Group\nname: a\nmaxPlayers: .inf\n", `a.yaml:3:13: .inf is not a number that the API knows; write ".inf" for a text`},
		"a tag":                          {"a.yaml", "kind: Group\nname: !!binary aGk=\n", "a.yaml:2:7: the tag !!binary is not supported"},
		"an unknown anchor":              {"a.yaml", "kind: Group\nname: *x\n", "a.yaml:2:7: unknown anchor 'x' referenced"},
		"a text":                         {"a.yaml", "hello\n", `a.yaml:1:1: a document is an object with kind and name, for example {"kind": "Group", "name": "lobby"}`},
		"an anchor in itself":            {"a.yaml", "kind: Group\nname: a\nlabels: &x\n  a: *x\n", "nested deeper than 100"},
		"deep JSON":                      {"a.json", strings.Repeat("[", 200), "nested deeper than 100"},
	} {
		t.Run(name, func(t *testing.T) {
			documents, err := Parse(c.file, []byte(c.content))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v and the error %v, not %s", documents, err, c.want)
			}
		})
	}
}

func TestParseReportsEveryWrongField(t *testing.T) {
	_, err := Parse("a.yaml", []byte("kind: Group\nname: a\nfoo: 1\nminInstance: 3\n---\nkind: Role\nname: MOD\npermission: []\n"))
	if got := len(split(err)); got != 3 {
		t.Errorf("%d errors: %v", got, err)
	}
}

func TestAliasesAreBounded(t *testing.T) {
	bomb := "kind: Group\nname: a\na0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
	for i := range 9 {
		bomb += strings.ReplaceAll(strings.ReplaceAll("aN: &aN [*aM,*aM,*aM,*aM,*aM,*aM,*aM,*aM,*aM,*aM]\n", "N", string(rune('1'+i))), "M", string(rune('0'+i)))
	}
	if _, err := Parse("a.yaml", []byte(bomb)); err == nil || !strings.Contains(err.Error(), "the aliases repeat more than 100000 values") {
		t.Errorf("got %v", err)
	}
}

func TestParse(t *testing.T) {
	want := map[string]any{"minInstances": json.Number("3"), "scaleUpThreshold": json.Number("0.80"), "labels": map[string]any{"on": "yes", "a": "2020-01-01"}, "static": true}
	for name, c := range map[string]struct{ file, content string }{
		"YAML":              {"a.yaml", "# comment\n---\nkind: Group\nname: lobby\nminInstances: 3\nscaleUpThreshold: 0.80\nstatic: true\nlabels:\n  on: yes\n  a: 2020-01-01\ncommand: null\n---\n"},
		"JSON":              {"a.json", `{"kind":"Group","name":"lobby","minInstances":3,"scaleUpThreshold":0.80,"static":true,"labels":{"on":"yes","a":"2020-01-01"},"command":null}`},
		"JSON in YAML":      {"a.yaml", `{"kind":"Group","name":"lobby","minInstances":3,"scaleUpThreshold":0.80,"static":true,"labels":{"on":"yes","a":"2020-01-01"}}`},
		"flow style":        {"-", `{kind: Group, name: lobby, minInstances: 3, scaleUpThreshold: 0.80, static: true, labels: {on: yes, a: 2020-01-01}}`},
		"a list":            {"a.json", `[{"kind":"group","name":"lobby","minInstances":3,"scaleUpThreshold":0.80,"static":true,"labels":{"on":"yes","a":"2020-01-01"}}]`},
		"anchors":           {"a.yaml", "kind: Group\nname: lobby\nlabels: &l {on: yes, a: 2020-01-01}\nminInstances: 3\nscaleUpThreshold: 0.80\nstatic: true\n"},
		"what a read shows": {"a.json", `{"kind":"Group","name":"lobby","minInstances":3,"scaleUpThreshold":0.80,"static":true,"labels":{"on":"yes","a":"2020-01-01"},"revision":3,"runningInstances":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.file, []byte(c.content))
			if err != nil || len(got) != 1 {
				t.Fatalf("got %v, %v", got, err)
			}
			if got[0].Kind != "Group" || got[0].Name != "lobby" || !reflect.DeepEqual(got[0].Fields, want) {
				t.Errorf("got %s %v, not %v", &got[0], got[0].Fields, want)
			}
		})
	}
}

func TestMergeKeyKeepsOwnFields(t *testing.T) {
	got, err := Parse("a.yaml", []byte("- &base\n  kind: Group\n  name: a\n  maxPlayers: 5\n- <<: *base\n  name: b\n"))
	if err != nil || len(got) != 2 || got[1].Name != "b" || !Equal(got[1].Fields["maxPlayers"], json.Number("5")) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestSourceHasATypeForTheAPIsKind(t *testing.T) {
	got, err := Parse("a.yaml", []byte("kind: Source\nname: a\ntype: git\nurl: https://git.example/a\n"))
	if err != nil || got[0].Fields["kind"] != "git" || got[0].Fields["type"] != nil {
		t.Fatalf("got %v, %v", got, err)
	}
	if p, ok := got[0].Find("kind"); !ok || p.String() != "a.yaml:3:1" {
		t.Errorf("kind is at %v", p)
	}
	text, err := got[0].YAML()
	if want := "kind: Source\nname: a\ntype: git\nurl: https://git.example/a\n"; err != nil || string(text) != want {
		t.Errorf("written as %s (%v)", text, err)
	}
}

func TestFind(t *testing.T) {
	got, err := Parse("a.yaml", []byte("kind: Group\nname: a\nreadiness:\n  type: bad\nscalingPolicies:\n- type: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"readiness.type": "a.yaml:4:3", "readiness.port": "a.yaml:3:1", "scalingPolicies[0].type": "a.yaml:6:3", "minInstances": ""} {
		p, ok := got[0].Find(path)
		if p.String() != want || ok != (want != "") {
			t.Errorf("%s is at %v", path, p)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yml", "kind: Group\nname: b\n")
	write("a/z.json", `{"kind":"Group","name":"z"} {"kind":"Role","name":"MOD"}`)
	write("notes.txt", "no document")
	write(".hidden/c.yaml", "no document")
	got, err := Read([]string{dir, "-"}, strings.NewReader("kind: Quota\nname: q\n"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range got {
		names = append(names, got[i].String())
	}
	if want := []string{"group z", "role MOD", "group b", "quota q"}; !reflect.DeepEqual(names, want) {
		t.Errorf("got %v, not %v", names, want)
	}
	if _, err := Read([]string{dir, "-"}, strings.NewReader("kind: Role\nname: mod\n")); err == nil || !strings.Contains(err.Error(), "standard input:1:1: role mod is declared twice, first at "+dir) {
		t.Errorf("a duplicate gave %v", err)
	}
	for path, want := range map[string]string{
		"https://a.example/x.yaml": "is a URL", dir + "/none": "no such file", t.TempDir(): "there is no file *.yaml", dir + "/.hidden": "", dir + "/notes.txt": "a document is an object",
	} {
		if _, err := Read([]string{path}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v", path, err)
		}
	}
	if _, err := Read([]string{"-"}, strings.NewReader(strings.Repeat(" ", MaxSize+1))); err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("a large input gave %v", err)
	}
	if _, err := Read([]string{"-"}, strings.NewReader("# nothing\n")); err == nil || !strings.Contains(err.Error(), "there is no document in standard input") {
		t.Errorf("an empty input gave %v", err)
	}
}

// values generates values as JSON decodes them, without null in objects.
func values(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
		case kind == 0 && depth > 0:
			return rapid.MapOfN(rapid.String(), values(depth-1), 0, 3).Draw(t, "object")
		case kind == 1 && depth > 0:
			return rapid.SliceOfN(values(depth-1), 0, 3).Draw(t, "list")
		case kind == 2:
			return json.Number(rapid.SampledFrom([]string{"0", "-1", "1.50", "1e300", "123456789012345678901"}).Draw(t, "number"))
		case kind == 3:
			return rapid.Bool().Draw(t, "bool")
		case kind == 4:
			return rapid.SampledFrom([]string{"yes", "on", "1.20", "010", "null", "~", "", " x", "a: b", "# c", "2020-01-01", "<<", "line\nbreak\n", "\n", "\ttab", "0o7", ".5", "1_000", "*a", "é\u2028"}).Draw(t, "trap")
		}
		return rapid.String().Draw(t, "text")
	})
}

func TestWrittenDocumentsReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Document{Kind: "Group", Name: "lobby", Fields: map[string]any{"configPatches": map[string]any{"file": map[string]any{"path": values(3).Draw(t, "value")}}}}
		for name, write := range map[string]func() ([]byte, error){"a.yaml": d.YAML, "a.json": d.JSON} {
			text, err := write()
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse(name, text)
			if err != nil || len(got) != 1 || !Equal(got[0].Fields, d.Fields) {
				t.Fatalf("%s\nis read as %v, %v", text, got, err)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"kind: Group\nname: a\n", `{"kind":"Group","name":"a","env":{"A":"1"}}`, "a: &x [1, *x]", "[{]", "kind: Role\nname: R\n---\n- 1\n", "? [a]\n: b", "\xef\xbb\xbfkind: x", "kind: Group\nname: a\n<<: [{a: 1}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, file := range []string{"a.yaml", "a.json", "-"} {
			documents, err := Parse(file, content)
			if err != nil {
				continue
			}
			for i := range documents {
				text, err := documents[i].YAML()
				if err != nil {
					t.Fatal(err)
				}
				again, err := Parse("again.yaml", text)
				if err != nil || len(again) != 1 || !Equal(again[0].Fields, documents[i].Fields) || again[0].Name != documents[i].Name {
					t.Fatalf("%q is written as %q and read as %v, %v", content, text, again, err)
				}
			}
		}
	})
}
