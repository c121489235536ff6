package render_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// fuzzMerge checks that a merge never panics, that its result can be merged and parsed
// again, and that merging a file over itself changes nothing.
func fuzzMerge(f *testing.F, file string, parses func([]byte) error) {
	f.Fuzz(func(t *testing.T, base, over []byte) {
		out, err := render.Merge(file, []render.Layer{{Template: "a", Content: base}, {Template: "b", Content: over}})
		if err != nil || bytes.Equal(base, over) || len(bytes.TrimSpace(out)) == 0 {
			return
		}
		given, _ := configfile.Substitute(string(out), func(string) (string, bool) { return "1", true })
		if err := parses([]byte(given)); err != nil { // placeholders may be where only values parse
			t.Fatalf("the result does not parse: %v\n%s", err, out)
		}
		again, err := render.Merge(file, []render.Layer{{Template: "a", Content: out}, {Template: "b", Content: over}})
		if err != nil {
			t.Fatalf("the result cannot be merged again: %v\n%s", err, out)
		}
		if !bytes.Equal(again, out) {
			t.Fatalf("laid over it once more it changes:\n%s\n---\n%s", out, again)
		}
	})
}

func FuzzMergeYAML(f *testing.F) {
	f.Add([]byte("a: 1\nb: &x {c: d}\n# e\n"), []byte("b:\n  - *y\n"))
	f.Add([]byte("a: |\n  text\n? [k]\n: v\n"), []byte("<<: {a: !!binary aGk=}\n"))
	f.Add([]byte("a: 1\n# below a\n"), []byte("a:\n"))
	f.Add([]byte("a: 1\n# below a\n\nb: 2\n"), []byte("a: {}\n# at the end\n"))
	f.Add([]byte("#\r\r-"), []byte("#"))
	f.Add([]byte("a:: &x {c d}"), []byte("a: b"))
	f.Add([]byte("0"), []byte("%A%"))
	f.Add([]byte("%U%"), []byte("!U%%Y%U"))
	fuzzMerge(f, "a.yml", func(b []byte) error { return yaml.Unmarshal(b, new(yaml.Node)) })
}

func FuzzMergeJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.50,null,true],"b":{"\u0000":"x"}}`), []byte(`{"b":{"c":1e400}}`))
	fuzzMerge(f, "a.json", func(b []byte) error { return json.Unmarshal(b, new(json.RawMessage)) })
}

func FuzzMergeTOML(f *testing.F) {
	f.Add([]byte("a = 1\n[b.c]\nd = 1979-05-27T07:32:00-08:00\n"), []byte("b = {x = [1.5, inf]}\nt = 07:32:00\n"))
	fuzzMerge(f, "a.toml", func(b []byte) error { return toml.Unmarshal(b, new(map[string]any)) })
}

func FuzzMergeProperties(f *testing.F) {
	f.Add([]byte("# c\na = 1\\\n 2\nb\\:c:d\n\\u00e9=\\ud83d\\ude00"), []byte("a\t=x\n!\n=\n"))
	fuzzMerge(f, "a.properties", func([]byte) error { return nil })
}
