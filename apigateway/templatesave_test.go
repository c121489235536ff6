package apigateway

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// packed returns a tar archive of alternating names and contents.
func packed(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i+1 < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: files[i], Mode: 0o600, Size: int64(len(files[i+1])), Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(files[i+1]))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestARunningInstancesConfigurationIsSavedToATemplate(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	n := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"memoryMb": 64})
	id := s.start("lobby")
	save := func(body string) *reply { return s.do("POST", "/api/v1/services/lobby-1/save-to-template", body) }
	save(`{"template":"kept"}`).want(404).naming("kept")
	s.do("PUT", "/api/v1/templates/kept/files/content?path=x", `{"content":"x"}`).want(404)
	s.do("POST", "/api/v1/templates", `{"name":"kept"}`).want(201)
	s.do("PUT", "/api/v1/templates/kept/files/content?path=stays", `{"content":"x"}`).want(200)
	save(`{"template":"kept"}`).want(409)
	s.do("POST", "/api/v1/services/none/save-to-template", `{"template":"kept"}`).want(404)
	save(`{"template":"kept","pathPrefix":"../.."}`).want(422).naming("pathPrefix")
	save(`{}`).want(422).naming("template")
	s.status(id, "node-1", fleet.Status{State: fleet.Online})

	report := `{"files":2,"unchanged":7,"skipped":[{"path":"world","reason":"a world"},{"path":"a.jar","reason":"not text"}]}`
	n.saved = packed(t, "server.properties", "port=%PORT%\n", "plugins/a.yml", "a: 1\n", client.ExportReportName, report)
	r := save(`{"template":"kept","pathPrefix":""}`).want(200).is("template", "kept").is("filesWritten", 2).is("unchanged", 7).
		is("skipped", []string{"world: a world", "a.jar: not text"}).is("report", []map[string]string{{"path": "world", "reason": "a world"}, {"path": "a.jar", "reason": "not text"}})
	s.do("GET", "/api/v1/templates/kept", nil).want(200).is("hash", r.field("hash")).is("files", 3)
	if got := s.text("kept", "server.properties"); got != "port=%PORT%\n" {
		t.Error(got)
	}
	latest, _ := s.do("GET", "/api/v1/templates/kept/history", nil).want(200).data()[0].(map[string]any)
	if latest["kind"] != "save" || latest["message"] != "saved from lobby-1" || latest["author"] != "admin" {
		t.Errorf("latest move %v", latest)
	}
	save(`{"template":"kept","pathPrefix":"none"}`).want(404)
	s.do("POST", "/api/v1/instances/"+string(id)+"/save-to-template", `{"template":"kept"}`).want(200).is("hash", r.field("hash"))

	n.mu.Lock()
	n.saved = packed(t, client.ExportReportName, `{"files":0,"skipped":[]}`)
	n.mu.Unlock()
	save(`{"template":"kept"}`).want(200).is("filesWritten", 0).is("hash", r.field("hash")).is("skipped", []string{})

	whole := packed(t, "server.properties", "changed", client.ExportReportName, report)
	for name, broken := range map[string][]byte{
		"cut": whole[:700], "no report": packed(t, "server.properties", "changed"), "no tar": []byte("garbage"), "nothing": nil,
	} {
		n.mu.Lock()
		n.saved = broken
		n.mu.Unlock()
		if got := save(`{"template":"kept"}`); got.status != 503 {
			t.Errorf("%s: %d %s", name, got.status, got.raw)
		}
	}
	s.do("GET", "/api/v1/templates/kept", nil).want(200).is("hash", r.field("hash"))
	s.user("vera", "VIEWER").do("POST", "/api/v1/services/lobby-1/save-to-template", `{"template":"kept"}`).want(403)
	s.loseNode("node-1")
	save(`{"template":"kept"}`).want(503)
}
