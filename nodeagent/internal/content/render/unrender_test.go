package render_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

var restoreValues = map[string]string{
	"PORT": "25565", "NAME": "lobby-1", "FLOAT": "1e5", "ZEROS": "007", "QUOTE": `a"b\c: 'd'`, "LINES": "x\ny", "P": "7", "UNUSED": "20",
}

// made renders a template as a start does.
func made(t testing.TB, name, template string, patches ...configfile.ConfigPatch) render.Original {
	t.Helper()
	var content []byte
	if template != "" {
		content = []byte(template)
	}
	e, err := render.Rules{Listed: []string{"**"}, Values: restoreValues, Patches: patches}.Edit(name, content)
	if err != nil {
		t.Fatal(err)
	}
	return render.Original{Template: content, Rendered: e.Content}
}

func TestUnrender(t *testing.T) {
	const set = configfile.PatchSet
	cases := []struct {
		name, file, template string
		patches              []configfile.ConfigPatch
		current, want        string
	}{
		{
			"text: lines in any order, with blanks and quotes", "a.conf", "# %NAME%\nport %PORT%;\nmax 20\n", nil,
			"max 30\n  port  \"25565\";\n# lobby-1\nother 25565\n", "max 30\nport %PORT%;\n# %NAME%\nother 25565\n",
		},
		{
			"yaml: another layout keeps placeholders where they were", "a.yml", "# of %NAME%\nport: %PORT%\nname: '%NAME%'\nmax: 20\n", nil,
			"max: 30\n# of lobby-1\nport: \"25565\"\nname: lobby-1 # hi\nbackup-port: 25565\n", "max: 30\n# of %NAME%\nport: %PORT%\nname: '%NAME%'\nbackup-port: 25565\n",
		},
		{
			"yaml: the same line elsewhere is the instance's own", "a.yml", "a:\n  port: %PORT%\n", nil,
			"a:\n  port: 25565\nb:\n  port: 25565\n", "a:\n  port: %PORT%\nb:\n  port: 25565\n",
		},
		{
			"yaml: numbers in any spelling", "a.yml", "f: %FLOAT%\nz: %ZEROS%\ng: '%ZEROS%'\n", nil,
			"f: 100000.0\nz: 7\ng: \"007\"\nx: 1\n", "f: %FLOAT%\nz: %ZEROS%\ng: '%ZEROS%'\nx: 1\n",
		},
		{
			"yaml: part of a value, where it is a word", "a.yml", "motd: welcome to %NAME% on %P%\nl: ['%PORT%', a]\n", nil,
			"motd: hi from lobby-1, 7 of 70\nl: ['25565', b, '25565']\n", "motd: hi from %NAME%, %P% of 70\nl: ['%PORT%', b, '25565']\n",
		},
		{
			"yaml: insertions into a list keep the other elements", "a.yml", "l:\n- '%PORT%'\n- {name: '%NAME%', port: %PORT%}\n- on %P%\n", nil,
			"l:\n- new\n- '25565'\n- other\n- {port: '25565', name: lobby-1}\n- {name: mine, port: 25565}\n- on 7\n",
			"l:\n  - new\n  - '%PORT%'\n  - other\n  - {port: %PORT%, name: '%NAME%'}\n  - {name: mine, port: 25565}\n  - on %P%\n",
		},
		{
			"yaml: elements removed from a list and moved", "a.yml", "l: [a, '%PORT%', b, '%NAME%', 'on %P%', c]\n", nil,
			"l: ['lobby-1', \"25565\", on 7, c]\n", "l: ['%NAME%', '%PORT%', 'on %P%', c]\n",
		},
		{
			"yaml: a moved duplicate in a list", "a.yml", "l: ['%PORT%', a, '%PORT%', b, c]\n", nil,
			"l: [new, '25565', a, b, c, '25565', end]\n", "l: [new, '%PORT%', a, b, c, '%PORT%', end]\n",
		},
		{
			"yaml: an element that was changed, beside one that was inserted", "a.yml", "l:\n- {name: a, port: %PORT%, max: 20}\n- {name: b, port: %P%}\n", nil,
			"l:\n- {name: new, port: 25565}\n- {name: a, port: 25565, max: 30}\n- {name: b, port: 7}\n",
			"l:\n  - {name: new, port: 25565}\n  - {name: a, port: %PORT%, max: 30}\n  - {name: b, port: %P%}\n",
		},
		{
			"json: a list element from a patch is removed, at any position", "a.json", `{"l": ["%NAME%", "b"], "x": 1}`,
			[]configfile.ConfigPatch{patch(set, "l[2]", `"patched"`)},
			`{"l": ["new", "lobby-1", "patched", "b"], "x": 2}`, "{\n  \"l\": [\n    \"new\",\n    \"%NAME%\",\n    \"b\"\n  ],\n  \"x\": 2\n}\n",
		},
		{
			"json: a list replaced by a patch stays", "a.json", `{"l": ["%NAME%", "b"], "x": 1}`,
			[]configfile.ConfigPatch{patch(set, "l", `["p"]`)},
			`{"l": ["p", "new"], "x": 1}`, `{"l": ["p", "new"], "x": 1}`,
		},
		{
			"toml: tables of an array", "a.toml", "[[s]]\nname = \"%NAME%\"\nport = %PORT%\n[[s]]\nname = \"b\"\nport = %P%\n", nil,
			"[[s]]\nname = \"new\"\nport = 1\n[[s]]\nname = 'lobby-1'\nport = 25565\nmax = 2\n[[s]]\nname = 'b'\nport = 7\n",
			"[[s]]\nname = \"new\"\nport = 1\n[[s]]\nname = \"%NAME%\"\nport = %PORT%\nmax = 2\n[[s]]\nname = 'b'\nport = %P%\n",
		},
		{
			"yaml: changes by patches are removed", "a.yml", "a: 1\nb:\n  c: x\n",
			[]configfile.ConfigPatch{patch(set, "b.c", `"%PORT%"`), patch(set, "b.d.e", "2"), patch(set, "f", "3")},
			"a: 2\nb:\n  c: \"25565\"\n  d:\n    e: 2\nf: 4\n", "a: 2\nb:\n  c: x\nf: 4\n",
		},
		{
			"json: another layout", "a.json", `{"port": %PORT%, "name": "%NAME%", "q": "x"}`, nil,
			"{\n \"name\":\"lobby-1\", \"port\":25565, \"q\":\"y\",\"n\":[25565]}", "{\n  \"name\": \"%NAME%\",\n  \"port\": %PORT%,\n  \"q\": \"y\",\n  \"n\": [\n    25565\n  ]\n}\n",
		},
		{
			"json: escapes", "a.json", `{"a": "%NAME% \u0041"}`, nil, `{"a": "\u006cobby-1 A", "b": 1}`, "{\n  \"a\": \"%NAME% A\",\n  \"b\": 1\n}\n",
		},
		{
			"toml: the lines do where they can", "a.toml", "# of %NAME%\nport = %PORT%\n[a]\nx = 1\n", nil,
			"# of lobby-1\nport = 25565\n[a]\nx = 2 # mine\n", "# of %NAME%\nport = %PORT%\n[a]\nx = 2 # mine\n",
		},
		{"toml: another layout", "a.toml", "bind = \"0.0.0.0:%PORT%\"\nx = 1\n", nil, "x = 2\nbind = \"0.0.0.0:\\u00325565\"\n", "bind = '0.0.0.0:%PORT%'\nx = 2\n"},
		{
			"properties: by key, however written", "a.properties", "port=%PORT%\nmotd=%QUOTE%\nname = x %NAME%\nmax=20\n", nil,
			"#Sun\nmax=30\r\nname=y lobby-1 z\nport : 2556\\u0035\nmotd=a\"b\\u0063\\: 'd'\nquery.port=25565\n", "#Sun\nmax=30\r\nname=y %NAME% z\nport=%PORT%\nmotd=%QUOTE%\nquery.port=25565\n",
		},
		{
			"properties: changes by patches are removed", "a.properties", "a=1\nb=2\n",
			[]configfile.ConfigPatch{patch(set, "b", `"%PORT%"`), patch(set, "c", "3")},
			"b=25565\na=5\nc=3\n", "b=2\na=5\n",
		},
		{"created by patches", "a.yml", "", []configfile.ConfigPatch{patch(set, "a.b", `"%PORT%"`)}, "a:\n  b: \"25565\"\n  c: 1\nd: 2\n", "a:\n  c: 1\nd: 2\n"},
		{"a value of several lines", "a.yml", "a: |\n  %NAME%\nport: %PORT%\n", nil, "port: 25565\na: \"lobby-1\\n\"\nx: 1\n", "port: %PORT%\na: |\n  %NAME%\nx: 1\n"},
		{"invalid format", "a.json", `{"port": %PORT%}`, nil, "{\"port\": 25565}\nbroken", "{\"port\": %PORT%}\nbroken"},
		{"a part of a number", "a.json", `{"n": %P%.5, "x": 1}`, nil, `{"x": 2, "n": 7.5}`, "{\n  \"x\": 2,\n  \"n\": %P%.5\n}\n"},
		{"a part of a number in a format that keeps no digits", "a.toml", "n = %P%.5\nx = 1\n", nil, "x = 2\nn = 7.50\n", "x = 2\nn = 7.50\n"},
		{"an emptied file", "a.yml", "a: %PORT%\n", nil, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := render.Unrender(c.file, []byte(c.current), made(t, c.file, c.template, c.patches...), restoreValues)
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("restored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongListsAreComparedAtTheirEnds(t *testing.T) {
	list := func(n int, text string) string { // the elements differ; one line has them all
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"%s %d"`, text, i))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for n, restored := range map[int]bool{500: true, 5000: false} {
		of := made(t, "a.json", list(n, "%NAME%"))
		current := string(of.Rendered)
		current = strings.Replace(current, `"lobby-1 1"`, `"new","lobby-1 1"`, 1)
		current = strings.Replace(current, fmt.Sprintf(`"lobby-1 %d"`, n-2), `"lobby-1 x"`, 1)
		got := string(render.Unrender("a.json", []byte(current), of, restoreValues))
		for _, end := range []string{`"%NAME% 0"`, fmt.Sprintf(`"%%NAME%% %d"`, n-1), `"new"`} {
			if !strings.Contains(got, end) {
				t.Errorf("of %d elements %s is missing", n, end)
			}
		}
		if middle := strings.Contains(got, `"%NAME% 250"`); middle != restored || !restored && !strings.Contains(got, `"lobby-1 250"`) {
			t.Errorf("of %d elements the middle is restored: %v", n, middle)
		}
	}
}

// FuzzUnrender checks that unrendering ends within its limits for any input.
func FuzzUnrender(f *testing.F) {
	f.Add("a.yml", "a: %PORT%\nb: [1, '%NAME%']\n", "c: 1\n")
	f.Add("a.json", `{"a": %P%, "b": "%QUOTE%"}`, " ")
	f.Add("a.toml", "a = %FLOAT%\n", "b = 1\n")
	f.Add("a.properties", "a=%LINES%\n", "b=%PORT%\n")
	f.Add("a.txt", "x %NAME%\n", "x")
	f.Fuzz(func(t *testing.T, name, template, more string) {
		if len(template)+len(more) > 1<<12 {
			return
		}
		of := made(t, name, template)
		render.Unrender(name, []byte(more), of, restoreValues)
		got := render.Unrender(name, append(bytes.Clone(of.Rendered), more...), of, restoreValues)
		if len(got) > 16*(len(template)+len(of.Rendered)+len(more)+64) {
			t.Errorf("%d bytes of %d", len(got), len(template)+len(more))
		}
	})
}
