package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

func layers(contents ...string) []render.Layer {
	var out []render.Layer
	for i, c := range contents {
		out = append(out, render.Layer{Template: "default/t" + string(rune('1'+i)), Content: []byte(c)})
	}
	return out
}

func TestMerge(t *testing.T) {
	cases := []struct {
		name, file string
		in         []string
		want       string
	}{
		{"one layer keeps its bytes", "a.yml", []string{"a:   1 # x\n"}, "a:   1 # x\n"},
		{"equal layers keep their bytes", "a.json", []string{"{ }", "{ }"}, "{ }"},

		{"yaml: mappings by key, the later one wins", "a.yml", []string{"a: 1\nb:\n  c: 1\n  d: 2\n", "b:\n  c: 3\ne: 4\n"}, "a: 1\nb:\n  c: 3\n  d: 2\ne: 4\n"},
		{"yaml: lists are replaced", "a.yaml", []string{"l: [1, 2]\n", "l: [3]\n"}, "l: [3]\n"},
		{"yaml: comments stay", "a.yml", []string{"# head\na: 1 # why\n# of b\nb: 2\n", "b: 3\n"}, "# head\na: 1 # why\n# of b\nb: 3\n"},
		{"yaml: a comment at a file's end stays", "a.yml", []string{"a: {}\n# end\n", "a: {b: 1}\n"}, "a: {b: 1}\n\n# end\n"},
		{"yaml: a comment below a value that was emptied stays", "a.yml", []string{"a: 1\n# below a\n\nb: 2\n", "a:\n"}, "a:\n# below a\nb: 2\n"},
		{"yaml: three layers", "a.yml", []string{"a: 1\n", "a: 2\nb: 1\n", "b: 2\n"}, "a: 2\nb: 2\n"},
		{"yaml: an empty layer changes nothing", "a.yml", []string{"a: 1\n", "# nothing\n"}, "a: 1\n"},
		{"yaml: a mapping in place of a value", "a.yml", []string{"a: 1\n", "a:\n  b: 2\n"}, "a:\n  b: 2\n"},
		{"yaml: null is a value", "a.yml", []string{"a: 1\n", "a: null\n"}, "a: null\n"},
		{
			"yaml: aliases and merge keys are resolved", "a.yml",
			[]string{"x: &x\n  a: 1\ny:\n  <<: *x\n  b: 2\nz: *x\n", "z:\n  a: 3\n"},
			"x:\n  a: 1\ny:\n  b: 2\n  a: 1\nz:\n  a: 3\n",
		},
		{"yaml: 1 and \"1\" are two keys", "a.yml", []string{"1: a\n", "\"1\": b\n"}, "1: a\n\"1\": b\n"},
		{"yaml: placeholders in quotes stay", "a.yml", []string{"port: \"%PORT%\"\n", "b: 1\n"}, "port: \"%PORT%\"\nb: 1\n"},
		{"yaml: placeholders without quotes stay", "a.yml", []string{"port: %PORT%\nl: [%A%, '%A%']\n", "b: %B%/x\nport: %OTHER%\n"}, "port: %OTHER%\nl: [%A%, '%A%']\nb: %B%/x\n"},
		{"json: placeholders without quotes stay", "a.json", []string{`{"port": %PORT%}`, `{"b": [%B%], "c": "%B%"}`}, "{\n  \"port\": %PORT%,\n  \"b\": [\n    %B%\n  ],\n  \"c\": \"%B%\"\n}\n"},
		{"toml: placeholders without quotes stay", "a.toml", []string{"port = %PORT%\n", "b = 1\n"}, "b = 1\nport = %PORT%\n"},
		{"yaml: an ambiguous word keeps its quotes", "a.yml", []string{"a: \"yes\"\n", "b: \"1\"\n"}, "a: \"yes\"\nb: \"1\"\n"},

		{
			"json: order of keys stays and numbers keep their digits", "a.json",
			[]string{`{"z":1.00000000000000000001,"a":{"x":[1,2],"y":"<&>"}}`, `{"a":{"x":[3]},"n":12345678901234567890}`},
			"{\n  \"z\": 1.00000000000000000001,\n  \"a\": {\n    \"x\": [\n      3\n    ],\n    \"y\": \"<&>\"\n  },\n  \"n\": 12345678901234567890\n}\n",
		},
		{"json: empty objects and lists stay short", "a.json", []string{`{"a":1}`, `{"a":{},"b":[]}`}, "{\n  \"a\": {},\n  \"b\": []\n}\n"},
		{"json: the last of duplicate keys counts", "a.json", []string{`{"a":1,"a":2}`, `{"b":null}`}, "{\n  \"a\": 2,\n  \"b\": null\n}\n"},

		{
			"toml: tables by key", "velocity.toml",
			[]string{"bind = \"0.0.0.0:1\"\n[servers]\nlobby = \"a\"\ntry = [\"lobby\"]\n", "[servers]\nhub = \"b\"\ntry = [\"hub\"]\n"},
			"bind = '0.0.0.0:1'\n\n[servers]\nhub = 'b'\nlobby = 'a'\ntry = ['hub']\n",
		},
		{"toml: dates stay dates", "a.toml", []string{"d = 2026-01-02\nt = 2026-01-02T03:04:05Z\n", "x = 1.0\n"}, "d = 2026-01-02\nt = 2026-01-02T03:04:05Z\nx = 1.0\n"},

		{
			"properties: values are replaced in place, new ones appended", "server.properties",
			[]string{"# head\nmotd=a\nport = 1\n\nx=1", "port=2\ny: 3\n"},
			"# head\nmotd=a\nport=2\n\nx=1\ny: 3\n",
		},
		{"properties: an equal value keeps its notation", "a.properties", []string{"a = 1\nb=1\n", "a=1\nb=2\n"}, "a = 1\nb=2\n"},
		{"properties: a continued line is one", "a.properties", []string{"a=x\\\n  y\nb=1\n", "a=z\n"}, "a=z\nb=1\n"},
		{"properties: escapes are read", "a.properties", []string{"a\\ b=1\n", "a\\u0020b=2\n"}, "a\\u0020b=2\n"},
		{"properties: a continuation at the end of the file is ignored", "a.properties", []string{"a=x\\", "b=2\n"}, "a=x\nb=2\n"},
		{"properties: CRLF line endings stay", "a.properties", []string{"a=1\r\nb=2\\\r\n  0\r\n#", "b=3\n", "c=4\n"}, "a=1\r\nb=3\r\n#\r\nc=4\r\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := render.Merge(c.file, layers(c.in...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMergeErrorsNameFileAndTemplate(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		prev := string(rune('a' + i))
		next := string(rune('b' + i))
		bomb += next + ": &" + next + " [" + strings.TrimSuffix(strings.Repeat("*"+prev+",", 10), ",") + "]\n"
	}
	cases := []struct{ name, file, content, want string }{
		{"broken yaml", "a.yml", "a: [", "is not valid YAML"},
		{"several documents", "a.yml", "a: 1\n---\nb: 1\n", "several YAML documents"},
		{"an alias bomb", "a.yml", bomb, "more than 300000 values"},
		{"an alias of itself", "a.yml", "a: &a [*a]\n", "nested more than 100 deep"},
		{"deep yaml", "a.yml", strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested more than 100 deep"},
		{"a merge key of a value", "a.yml", "a:\n  <<: 1\n", "<< must name mappings"},
		{"broken json", "a.json", "{", "is not valid JSON"},
		{"two values of json", "a.json", "{}{}", "more than one value"},
		{"deep json", "a.json", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested more than 100 deep"},
		{"broken toml", "a.toml", "a = ", "is not valid TOML"},
		{"deep toml", "a.toml", "a = " + strings.Repeat("[", 1<<20), "nested more than 100 deep"},
		{"deep keys of toml", "a.toml", strings.Repeat("a.", 1<<20) + "a = 1", "nested more than 100 deep"},
		{"no text", "a.properties", "a=\xff", "not valid UTF-8"},
		{"too large", "a.json", `"` + strings.Repeat("x", 5<<20) + `"`, "larger than 4 MiB"},
		{"a placeholder in an escape", "a.yml", "a: \"\\x%A%\"\nb: %B%\n", "is not valid YAML"},
		{"a placeholder in an escaped tag", "a.yml", "a: !x%%A% 1\nb: %B%\n", "is not valid YAML"},
		{"no known format", "a.conf", "a", "has no known structure"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := render.Merge(c.file, layers(c.content, "b"))
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("error %v, want Invalid", err)
			}
			for _, want := range []string{c.file, "default/t1", c.want} {
				if !strings.Contains(errs.MessageOf(err), want) {
					t.Errorf("message %q does not say %q", errs.MessageOf(err), want)
				}
			}
		})
	}
}
