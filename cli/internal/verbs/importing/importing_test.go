package importing_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/orreryhq/orrery/cli/internal/root"
	"github.com/orreryhq/orrery/cli/internal/settings"
)

// source is a directory of CloudNet with three groups and five templates.
const source = "../../importer/testdata/cloudnet"

func run(t *testing.T, server string, args ...string) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"ORRERY_SERVER": server}
	a := &app.App{
		In: strings.NewReader(""), Out: &out, Err: &errs, Env: func(name string) string { return env[name] },
		Settings: settings.New(filepath.Join(t.TempDir(), "config.yaml"), nil),
	}
	code := root.Run(t.Context(), a, args)
	return code, out.String(), errs.String()
}

func TestOutWritesDocumentsAndTemplates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fleet")
	code, out, errs := run(t, "", "import", "cloudnet", source, "--out", dir)
	if code != exit.OK || !strings.Contains(out, "3 documents and 5 templates written to "+dir) || !strings.Contains(errs, "note: task Lobby, futureField") {
		t.Fatalf("%d\n%s\n%s", code, out, errs)
	}
	documents, err := manifest.Read([]string{filepath.Join(dir, "documents")}, nil)
	if err != nil || len(documents) != 3 {
		t.Errorf("%d documents can be read: %v", len(documents), err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "templates", "Proxy", "default", "velocity.*")); err != nil || len(files) != 2 {
		t.Errorf("the template has %v, %v", files, err)
	}
	if code, _, errs := run(t, "", "import", "cloudnet", source, "--out", dir); code != exit.Failed || !strings.Contains(errs, "is not empty") {
		t.Errorf("a second import into the directory: %d, %s", code, errs)
	}
}

func TestImportAsks(t *testing.T) {
	if code, _, errs := run(t, "http://127.0.0.1:1", "import", "cloudnet", source); code != exit.Usage || !strings.Contains(errs, "upload 5 templates and apply 3 documents") {
		t.Errorf("%d, %s", code, errs)
	}
}

// gateway takes new templates and refuses everything else.
func gateway(t *testing.T, uploads map[string]bool) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/templates/import" {
			uploads[r.FormValue("name")+r.URL.RawQuery] = true
			_, _ = w.Write([]byte("{}"))
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": "not found"}})
	}))
	t.Cleanup(server.Close)
	return server
}

func TestImportUploadsTemplatesBeforeItApplies(t *testing.T) {
	uploads := map[string]bool{}
	code, out, errs := run(t, gateway(t, uploads).URL, "import", "cloudnet", source, "--yes")
	if code != exit.NotFound || !strings.HasPrefix(out, "group lobby failed\n") { // this server creates no groups
		t.Errorf("%d, %s %s", code, out, errs)
	}
	want := []string{"Global/server", "Lobby/default", "Lobby/winter", "Proxy/default", "Survival/default"}
	if got := slices.Sorted(maps.Keys(uploads)); !slices.Equal(got, want) {
		t.Errorf("uploaded %v, not %v", got, want)
	}
	clear(uploads)
	if code, _, _ := run(t, gateway(t, uploads).URL, "import", "cloudnet", source, "--dry-run"); code == exit.OK || !uploads["Proxy/defaultdryRun=true"] {
		t.Errorf("a dry run ends with %d and uploads %v", code, uploads)
	}
}
