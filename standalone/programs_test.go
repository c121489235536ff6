package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
)

func TestAProgramOfItsDirectoryBringsTemplates(t *testing.T) {
	t.Parallel()
	programs := t.TempDir()
	if err := os.MkdirAll(filepath.Join(programs, "content", "games", "lobby"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"content/games/lobby/f": "brought", "bring": "#!/bin/sh\nexec tar -C " + programs + "/content -c games\n"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := &answers{program: start(t, t.TempDir(), "-programs-dir", programs, "-metrics-public")}
	p.must(http.MethodPut, "/api/v1/template-sources/vault", map[string]any{"kind": "program", "program": "bring"})
	await.That(t, "the template of the program", func() string {
		var source struct {
			Status struct{ State, Message string }
		}
		p.get("/api/v1/template-sources/vault", &source)
		return await.Unless(source.Status.State == "IN_SYNC", "%+v", source)
	})
	p.must(http.MethodGet, "/api/v1/templates/games%2Flobby/files/content?path=f", nil)
	if !strings.Contains(p.all.String(), "brought") {
		t.Errorf("the file is not there:\n%s", p.all.String())
	}

	resp, err := http.Get(p.ready.API + "/api/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the metrics are answered with %s without a token", resp.Status)
	}
}
