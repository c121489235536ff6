package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func artifactOf(body string) *content.Artifact {
	return &content.Artifact{Platform: "PAPER", Version: "1.21", URL: "http://x.example/p.jar", SHA256: sum([]byte(body)), Path: "bin/server.jar"}
}

func TestArtifactIsWrittenUnlessATemplateHasIt(t *testing.T) {
	for _, static := range []bool{false, true} {
		b := newBench(t)
		b.contents[sum([]byte("jar"))] = []byte("jar")
		plan := fleet.Plan{Static: static, Override: true, Artifact: artifactOf("jar"), Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "1"})}}
		for range 2 {
			if notes, err := b.build(plan); err != nil || len(notes) > 0 {
				t.Fatal(notes, err)
			}
		}
		dir := b.builder.Dir(placement(), fleet.Plan{Static: static})
		if diff := cmp.Diff(map[string]string{"x": "1", "bin/server.jar": "jar"}, b.tree(dir)); diff != "" {
			t.Error(diff)
		}
		plan.Layers = append(plan.Layers, b.layer("b", map[string]string{"bin/server.jar": "own"}))
		if _, err := b.build(plan); err != nil {
			t.Fatal(err)
		}
		if got := b.tree(dir)["bin/server.jar"]; got != "own" {
			t.Errorf("the template's own file: %q", got)
		}
	}
}

func TestUnknownArtifactKeepsTheExistingJar(t *testing.T) {
	for _, override := range []bool{false, true} {
		b := newBench(t)
		plan := fleet.Plan{Static: true, Override: override, Artifact: &content.Artifact{Platform: "PAPER", Version: "1.21", Path: "bin/server.jar"}}
		_, err := b.build(plan)
		mustFail(t, err, fleet.ReasonArtifactFetch)
		jar := filepath.Join(b.builder.Dir(placement(), fleet.Plan{Static: true}), "bin", "server.jar")
		if err := errors.Join(os.MkdirAll(filepath.Dir(jar), 0o755), os.WriteFile(jar, []byte("its own"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if notes, err := b.build(plan); err != nil || len(notes) > 0 {
			t.Error(notes, err)
		}
		if got := b.tree(filepath.Dir(filepath.Dir(jar)))["bin/server.jar"]; got != "its own" {
			t.Errorf("it holds %q", got)
		}
	}
}

func TestArtifactFailureHasItsReason(t *testing.T) {
	cases := []struct {
		name string
		err  error
		edit func(*content.Artifact)
		want fleet.Reason
		says string
	}{
		{"another hash", errs.New(errs.Conflict, "the catalog says aa, its URL has bb"), nil, fleet.ReasonArtifactHash, "the catalog says aa, its URL has bb"},
		{"no answer", errs.New(errs.Unavailable, "http://x.example/p.jar does not answer"), nil, fleet.ReasonArtifactFetch, "PAPER 1.21 could not be fetched: http://x.example/p.jar does not answer"},
		{"URL without a hash", nil, func(a *content.Artifact) { a.URL, a.SHA256 = "http://x.example/p.jar", "" }, fleet.ReasonArtifactFetch, "no gateway has downloaded http://x.example/p.jar"},
		{"removed from the catalog", nil, func(a *content.Artifact) { a.URL, a.SHA256 = "", "" }, fleet.ReasonArtifactFetch, "PAPER 1.21 is not in the catalog"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			artifact := artifactOf("jar")
			b.failing = map[string]error{artifact.SHA256: c.err}
			if c.edit != nil {
				c.edit(artifact)
			}
			_, err := b.build(fleet.Plan{Artifact: artifact})
			mustFail(t, err, c.want)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("message: %v", err)
			}
			if left, err := os.ReadDir(filepath.Join(b.data, "running")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
