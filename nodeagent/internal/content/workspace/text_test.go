package workspace_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

func configPatch(op configfile.PatchOp, file, path, value string) configfile.ConfigPatch {
	return configfile.ConfigPatch{File: file, Path: path, Op: op, Value: json.RawMessage(value)}
}

func TestListedFilesAreMerged(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{
		Merge: []string{"**/*.yml", "**/*.conf"}, FileModifications: []string{"config/a.yml"},
		Layers: []fleet.PlanLayer{
			b.layer("low", map[string]string{"config/a.yml": "a: 1\nport: \"%PORT%\"\n", "b.properties": "x=1\ny=1\n", "c.conf": "1"}),
			b.layer("mid", map[string]string{"config/a.yml": "b: 2\n"}),
			b.layer("top", map[string]string{"config/a.yml": "a: 3\n", "b.properties": "x=2\n", "c.conf": "2"}),
		},
		Patches: []configfile.ConfigPatch{configPatch(configfile.PatchSet, "config/a.yml", "c", "4")},
	}
	notes, err := b.build(plan)
	if err != nil || len(notes) > 0 {
		t.Fatal(notes, err)
	}
	port := b.tree(b.builder.Dir(placement(), fleet.Plan{}))["config/a.yml"]
	want := map[string]string{"config/a.yml": port, "b.properties": "x=2\n", "c.conf": "2"}
	if diff := cmp.Diff(want, b.tree(b.builder.Dir(placement(), fleet.Plan{}))); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(port, "a: 3\nport: \"") || strings.Contains(port, "%") || !strings.HasSuffix(port, "\nb: 2\nc: 4\n") {
		t.Errorf("merged: %q", port)
	}
}

func TestDirectoryBetweenLayersEndsTheMerge(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{Merge: []string{"**/*.yml"}, Layers: []fleet.PlanLayer{
		b.layer("low", map[string]string{"a.yml": "a: 1\n"}), b.layer("mid", map[string]string{"a.yml/x": "x"}), b.layer("top", map[string]string{"a.yml": "b: 2\n"}),
	}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if got := b.tree(b.builder.Dir(placement(), fleet.Plan{})); !cmp.Equal(got, map[string]string{"a.yml": "b: 2\n"}) {
		t.Errorf("built %v", got)
	}
}

func TestFailedMergeLeavesNothing(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{Merge: []string{"*.json"}, Layers: []fleet.PlanLayer{
		b.layer("low", map[string]string{"a.json": "{}"}), b.layer("top", map[string]string{"a.json": "// no"}),
	}}
	_, err := b.build(plan)
	mustFail(t, err, fleet.ReasonConfigPatch)
	if err == nil || !strings.Contains(err.Error(), "a.json: the version of template t/top is not valid JSON") {
		t.Errorf("message: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(b.data, "running")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPatchesCreateFilesAndEditTheServers(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{
		Static: true, Override: true, ProtectedPaths: []string{"mine.yml"},
		Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"t.yml": "a: 1\n"})},
		Patches: []configfile.ConfigPatch{
			configPatch(configfile.PatchSet, "deep/new.json", "a.b", `"%PORT%"`), configPatch(configfile.PatchSet, "t.yml", "b", "2"),
			configPatch(configfile.PatchReplace, "theirs.properties", "x", "2"), configPatch(configfile.PatchSet, "mine.yml", "a", "2"),
		},
	}
	notes, err := b.build(plan)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"no file matches theirs.properties of configPatches"}, notes); diff != "" {
		t.Error(diff)
	}
	dir := b.builder.Dir(placement(), fleet.Plan{Static: true})
	for name, content := range map[string]string{"theirs.properties": "x=1\n", "mine.yml": "a: mine\n", "t.yml": "a: 9\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if notes, err = b.build(plan); err != nil || len(notes) > 0 {
		t.Fatal(notes, err)
	}
	got := b.tree(dir)
	if !strings.Contains(got["deep/new.json"], `"b": "`+"25565"+`"`) {
		t.Errorf("made: %q", got["deep/new.json"])
	}
	delete(got, "deep/new.json")
	want := map[string]string{"t.yml": "a: 1\nb: 2\n", "theirs.properties": "x=2\n", "mine.yml": "a: mine\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUpToDateGeneratedFilesAreNotRewritten(t *testing.T) {
	for _, override := range []bool{false, true} {
		b := newBench(t)
		const put = configfile.PatchSet
		plan := fleet.Plan{
			Static: true, Override: override, Merge: []string{"**/*.yml"}, FileModifications: []string{"a.properties"},
			Patches: []configfile.ConfigPatch{
				configPatch(put, "a.yml", "a", "1"), configPatch(put, "b.json", "n", "2"), configPatch(put, "c.toml", "c", `"x"`), configPatch(put, "a.properties", "motd", `"hi"`),
				configPatch(put, "made.yml", "d", "true"),
				configPatch(configfile.PatchReplace, "b.json", "n", "2"),
			},
			Layers: []fleet.PlanLayer{
				b.layer("a", map[string]string{"a.yml": "b:   1\n", "b.json": `{ "n" : 2 }`, "c.toml": "# why\nc = 'x'\n", "a.properties": "port=%PORT%\r\n"}),
				b.layer("b", map[string]string{"a.yml": "c: 1 # c\n"}),
			},
		}
		dir, long := b.builder.Dir(placement(), fleet.Plan{Static: true}), time.Unix(1e9, 0)
		names := []string{"a.yml", "b.json", "c.toml", "a.properties", "made.yml"}
		before, after := map[string]look{}, map[string]look{}
		for _, into := range []map[string]look{before, after} {
			if _, err := b.build(plan); err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				path := filepath.Join(dir, name)
				if len(after) == 0 && len(before) < len(names) {
					if err := os.Chtimes(path, long, long); err != nil {
						t.Fatal(err)
					}
				}
				into[name] = b.look(path)
			}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("override %v: %s", override, diff)
		}
		got := b.tree(dir)
		if got["b.json"] != `{ "n" : 2 }` || got["c.toml"] != "# why\nc = 'x'\n" || got["a.properties"] != "port=25565\r\nmotd=hi\r\n" {
			t.Errorf("%q", got)
		}
	}
}
