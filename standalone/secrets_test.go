package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/store/storetest"
)

const recognisable = "xK9-recognisable-Value"

// answers calls the API and stores the replies.
type answers struct {
	*program
	all bytes.Buffer
}

func (a *answers) must(method, path string, body any) json.RawMessage {
	a.t.Helper()
	var into json.RawMessage
	if err := a.call(method, path, body, &into); err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	fmt.Fprintf(&a.all, "%s %s: %s\n", method, path, into)
	return into
}

// holding returns the files below the data directory that contain a text, except those in
// the instances' own directories.
func holding(t *testing.T, data, text string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if path == filepath.Join(data, "node", "running") {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return nil // it was deleted meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestAValueOfASecretIsInTheInstancesFilesAndNowhereElse(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := &answers{program: start(t, data, "-debug")}

	const template = "/api/v1/templates/lobby"
	p.must(http.MethodPost, "/api/v1/templates", map[string]any{"name": "lobby", "platform": "PAPER"})
	p.must(http.MethodPut, template+"/files/content?path=db.properties", map[string]any{"content": "stored=%STORED%\nplain=%PLAIN%\none=%ONE%\ndefault=%DEFAULT%\n"})
	define := func(key, scope string, value any) map[string]any {
		return map[string]any{"key": key, "type": "SECRET", "scope": scope, "defaultValue": value}
	}
	p.must(http.MethodPut, template+"/variables", []any{
		define("STORED", "GROUP", nil), define("PLAIN", "GROUP", nil), define("ONE", "INSTANCE", nil), define("DEFAULT", "TEMPLATE", recognisable+"-default"),
	})
	if listed := string(p.must(http.MethodGet, template+"/variables", nil)); !strings.Contains(listed, `"***"`) || strings.Contains(listed, "sealed:") {
		t.Errorf("the variables are %s", listed)
	}
	p.must(http.MethodPut, "/api/v1/secrets/db", map[string]any{"values": map[string]string{"password": recognisable + "-stored"}})
	p.must(http.MethodPost, "/api/v1/groups", map[string]any{
		"name": "lobby", "command": "while read -r line; do [ \"$line\" = stop ] && exit 0; done", "templates": []string{"lobby"}, "fileModifications": []string{"*.properties"},
		"scalingMode": "MANUAL", "minInstances": 0, "memoryMb": 64, "stopCommand": "stop",
		"variableValues": map[string]string{"STORED": "secret:db#password", "PLAIN": recognisable + "-plain"},
	})
	p.must(http.MethodPost, "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{"ONE": recognisable + "-one"}})
	uid := p.running(1)["lobby-1"].UID

	want := "stored=" + recognisable + "-stored\nplain=" + recognisable + "-plain\none=" + recognisable + "-one\ndefault=" + recognisable + "-default\n"
	file := filepath.Join(data, "node", "running", uid, "db.properties")
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Fatalf("the instance has %q, %v", got, err)
	}
	// The instance changes its configuration, and the change is saved with placeholders
	// instead of values.
	if err := os.WriteFile(file, []byte(want+"added=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.must(http.MethodPost, "/api/v1/templates", map[string]any{"name": "kept", "platform": "PAPER"})
	p.must(http.MethodPost, "/api/v1/services/lobby-1/save-to-template", map[string]any{"template": "kept"})
	if kept := string(p.must(http.MethodGet, "/api/v1/templates/kept/files/content?path=db.properties", nil)); !strings.Contains(kept, "stored=%STORED%") || !strings.Contains(kept, "added=1") {
		t.Errorf("what was kept is %s", kept)
	}
	for _, path := range []string{
		"/api/v1/groups", "/api/v1/groups/lobby", "/api/configurations", "/api/configurations/lobby", "/api/v1/secrets", "/api/v1/secrets/db",
		"/api/v1/services", "/api/v1/services/lobby-1", "/api/v1/services/lobby-1/composition", "/api/v1/services/lobby-1/explain", "/api/v1/audit",
		"/api/v1/services/lobby-1/console/history", "/api/v1/templates", template, template + "/versions", "/api/v1/nodes", "/api/v1/overview",
	} {
		p.must(http.MethodGet, path, nil)
	}
	p.must(http.MethodPatch, "/api/v1/groups/lobby?dryRun=true", map[string]any{"variableValues": map[string]string{"PLAIN": recognisable + "-other"}})

	if keys := storetest.Holding(t, p.ready.Etcd, recognisable); len(keys) > 0 {
		t.Errorf("etcd has a value in %v", keys)
	}
	if strings.Contains(p.all.String(), recognisable) {
		t.Errorf("an answer has a value:\n%s", p.all.String())
	}
	if files := holding(t, data, recognisable); len(files) > 0 {
		t.Errorf("a value stands in %v", files)
	}
	p.stop()
	if said := p.stdout.String() + p.stderr.String(); strings.Contains(said, recognisable) {
		t.Error("the log has a value")
	}
	if files := holding(t, data, recognisable); len(files) > 0 {
		t.Errorf("after the end a value stands in %v", files)
	}
}
