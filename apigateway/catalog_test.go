package apigateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestTheCatalogIsKeptByPlatform(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const versions = "/api/v1/catalog/paper/versions"
	hash := strings.Repeat("ab", 32)
	add := func(version string) *reply {
		t.Helper()
		return s.do("POST", versions, map[string]any{"version": version, "downloadUrl": "https://x.example/" + version + ".jar", "sha256": strings.ToUpper(hash), "category": "server", "configFormat": "paper"})
	}
	s.do("GET", "/api/v1/catalog", nil).want(200).is("total", 0)
	add("1.20").want(201).is("platform", "PAPER").is("version", "1.20").is("category", "SERVER").is("recommended", false).
		is("sha256", hash).is("downloadUrl", "https://x.example/1.20.jar").is("configFormat", "paper")
	add("1.21").want(201)
	add("1.20").want(409)
	s.do("PUT", versions+"/1.20/recommended", nil).want(200).is("recommended", true)
	s.do("PUT", versions+"/1.21/recommended", nil).want(200).is("recommended", true)
	s.do("PUT", versions+"/9/recommended", nil).want(404)
	recommended := 0
	for _, row := range s.do("GET", "/api/v1/catalog?platform=PAPER", nil).want(200).is("total", 2).data() {
		if m, _ := row.(map[string]any); m["recommended"] == true {
			recommended++
		}
	}
	if recommended != 1 {
		t.Errorf("%d versions are recommended", recommended)
	}
	rename := func(to string) *reply { return s.do("PATCH", versions+"/1.21", map[string]string{"version": to}) }
	rename("1.20").want(409)
	s.group("pinned", map[string]any{"platformVersion": "1.21"})
	rename("1.21.1").want(409).naming("pinned")
	s.do("PATCH", "/api/v1/groups/pinned", `{"platformVersion":""}`).want(200)
	rename("1.21.1").want(200).is("version", "1.21.1").is("recommended", true)
	rename("1.21.2").want(404)
	s.do("GET", "/api/v1/audit?action=catalog.update", nil).want(200).is("total", 1).is("data.0.resourceId", "PAPER 1.21").is("data.0.details", "https://x.example/1.21.jar "+hash)
	s.do("PATCH", versions+"/1.21.1", `{"version":"1.21"}`).want(200).is("recommended", true)
	s.do("PATCH", "/api/v1/groups/pinned", `{"command":"run"}`).want(200)
	s.do("GET", "/api/v1/catalog?platform=velocity", nil).want(200).is("total", 0)
	s.do("PATCH", versions+"/1.20", `{"category":"PROXY"}`).want(200).is("category", "PROXY").is("downloadUrl", "https://x.example/1.20.jar")
	s.do("PATCH", versions+"/1.20", `{"version":"1.20","downloadUrl":"","sha256":""}`).want(200).is("downloadUrl", "https://x.example/1.20.jar").is("sha256", hash)
	s.do("PATCH", versions+"/9", `{"category":"PROXY"}`).want(404)
	for field, body := range map[string]string{
		"downloadUrl": `{"downloadUrl":"file:///etc/passwd","sha256":"` + hash + `"}`, "sha256": `{"sha256":"x"}`, "category": `{"category":"GAME"}`, "version": `{"version":"a b"}`,
	} {
		s.do("PATCH", versions+"/1.20", body).want(422).naming(field)
	}
	s.do("POST", "/api/v1/catalog/a b/versions", `{"version":"2","downloadUrl":"https://x.example/2.jar","sha256":"`+hash+`"}`).want(422).naming("platform")

	s.do("DELETE", versions+"/1.21", nil).want(204)
	s.do("DELETE", versions+"/1.21", nil).want(404)
	s.do("DELETE", versions+"/1.20", nil).want(204)
	s.do("GET", "/api/v1/catalog", nil).want(200).is("total", 0)

	eve := s.user("eve", "VIEWER")
	eve.do("GET", "/api/v1/catalog", nil).want(200)
	for method, path := range map[string]string{"POST": versions, "PATCH": versions + "/1", "DELETE": versions + "/1", "PUT": versions + "/1/recommended"} {
		eve.do(method, path, `{}`).want(403)
	}
}

func TestBlankVersionUsesRecommendedOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	hash := strings.Repeat("cd", 32)
	for _, v := range []string{"1.20", "1.21"} {
		s.do("POST", "/api/v1/catalog/PAPER/versions", map[string]any{"version": v, "downloadUrl": "https://x.example/" + v, "sha256": hash}).want(201)
	}
	s.do("PUT", "/api/v1/catalog/PAPER/versions/1.20/recommended", nil).want(200)
	s.group("lobby", map[string]any{"platform": "PAPER", "command": "", "jarFile": "server.jar"})
	runtime := func() *reply {
		t.Helper()
		return s.do("GET", "/api/v1/services/"+string(s.start("lobby"))+"/composition", nil).want(200)
	}
	runtime().is("runtime", map[string]any{"platform": "PAPER", "platformVersion": "1.20", "jarFile": "server.jar", "url": "https://x.example/1.20", "sha256": hash})
	s.do("DELETE", "/api/v1/catalog/PAPER/versions/1.20", nil).want(409).naming("lobby")
	s.do("PUT", "/api/v1/catalog/PAPER/versions/1.21/recommended", nil).want(200)
	runtime().is("runtime.platformVersion", "1.21")
	s.do("DELETE", "/api/v1/catalog/PAPER/versions/1.20", nil).want(204)
	s.do("PATCH", "/api/v1/groups/lobby", `{"platformVersion":"1.20"}`).want(422).naming("platformVersion")
	s.do("PATCH", "/api/v1/groups/lobby", `{"platformVersion":"1.21"}`).want(200)
	s.do("DELETE", "/api/v1/catalog/PAPER/versions/1.21", nil).want(409)
}

func TestVersionWithoutHashGetsItFromFirstDownload(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	var content atomic.Value // of "", the host has nothing
	content.Store("")
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := content.Load().(string)
		if text == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(host.Close)
	sumOf := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	const versions = "/api/v1/catalog/paper/versions"
	entry := func() *reply {
		t.Helper()
		return s.do("GET", "/api/v1/catalog?platform=PAPER", nil).want(200).is("total", 1)
	}
	warned := func(r *reply, why string) *reply {
		t.Helper()
		if got := r.header.Get("Warning"); !strings.Contains(got, "the version has no hash yet") || !strings.Contains(got, why) {
			t.Errorf("Warning is %q, want %q", got, why)
		}
		return r
	}
	pinned := func(text string) {
		t.Helper()
		await.That(t, "the hash of "+text, func() string {
			got := entry().field("data.0.sha256")
			return await.Unless(got == sumOf(text), "%v", got)
		})
	}

	warned(s.do("POST", versions, map[string]string{"version": "1", "downloadUrl": host.URL + "/a"}), "404").want(201).is("sha256", "")
	entry().is("data.0.sha256", "")
	content.Store("first") // the download is retried
	pinned("first")
	s.do("GET", "/api/v1/audit?action=catalog.pin", nil).want(200).is("total", 1).is("data.0.resourceId", "PAPER 1").is("data.0.details", host.URL+"/a "+sumOf("first"))

	content.Store("second") // the first content stays pinned
	if r := s.do("PATCH", versions+"/1", map[string]string{"downloadUrl": host.URL + "/a"}).want(200).is("sha256", sumOf("first")); r.header.Get("Warning") != "" {
		t.Error(r.header)
	}
	s.do("PATCH", versions+"/1", map[string]string{"downloadUrl": host.URL + "/b"}).want(200).is("sha256", sumOf("second"))
	content.Store("")
	warned(s.do("PATCH", versions+"/1", map[string]string{"downloadUrl": host.URL + "/c"}), "404").want(200).is("sha256", "")
	s.do("PATCH", versions+"/1", map[string]string{"sha256": sumOf("third")}).want(200).is("sha256", sumOf("third"))
}

func TestVersionIsStoredWithoutTemplateService(t *testing.T) {
	t.Parallel()
	s := newSite(t) // without templatesvc
	r := s.do("POST", "/api/v1/catalog/paper/versions", `{"version":"2","downloadUrl":"https://x.example/2.jar"}`).want(201).is("sha256", "")
	if !strings.Contains(r.header.Get("Warning"), "the version has no hash yet") {
		t.Errorf("%v", r.header)
	}
	if r := s.do("PUT", "/api/v1/catalog/paper/versions/2/recommended", nil).want(200).is("sha256", ""); r.header.Get("Warning") != "" {
		t.Errorf("to recommend a version downloads it: %v", r.header)
	}
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	s.group("lobby", map[string]any{"platform": "PAPER", "platformVersion": "2", "command": "", "jarFile": "server.jar"})
	s.do("GET", "/api/v1/services/"+string(s.start("lobby"))+"/composition", nil).want(200).is("runtime.url", "https://x.example/2.jar").is("runtime.sha256", "")
}

func TestDeadDownloadHostDoesNotTripBreaker(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	gone := httptest.NewServer(http.NotFoundHandler())
	dead := gone.URL + "/x.jar"
	gone.Close()
	for n := range 7 { // more often than the breaker's threshold
		r := s.do("POST", "/api/v1/catalog/paper/versions", map[string]string{"version": fmt.Sprint(n), "downloadUrl": dead}).want(201)
		if !strings.Contains(r.header.Get("Warning"), "does not answer") {
			t.Errorf("%v", r.header)
		}
	}
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	s.do("GET", "/api/v1/templates/lobby/files", nil).want(200)
}
