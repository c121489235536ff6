package apigateway

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNoPathOfATemplateLeadsOut(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	s.do("PUT", "/api/v1/templates/lobby/files/content?path=a", `{"content":"1"}`).want(200)
	before := s.records()
	refused := func(method, path string, body any, header ...string) {
		t.Helper()
		r := s.do(method, path, body, header...)
		if r.status != 400 && r.status != 404 && r.status != 422 {
			t.Errorf("%s %s: %d %.200s", method, path, r.status, r.raw)
			return
		}
		r.enveloped()
	}
	long := strings.Repeat("x", 2000)
	for _, bad := range []string{
		"../x", "a/../../x", "/etc/passwd", "..", "a/..", "./a", "a//b", "a/", `..\x`, `a\b`, "a\x00b", "a\nb", "\xff", long,
		strings.Repeat("d/", 70) + "f", ".orrery-lock",
	} {
		q, p := url.QueryEscape(bad), url.PathEscape(bad)
		const one = "/api/v1/templates/lobby"
		refused("GET", one+"/files?path="+q, nil)
		refused("DELETE", one+"/files?path="+q, nil)
		for _, what := range []string{"content", "download"} {
			refused("GET", one+"/files/"+what+"?path="+q, nil)
		}
		refused("PUT", one+"/files/content?path="+q, `{"content":"x"}`)
		if utf8.ValidString(bad) { // JSON strings are valid UTF-8
			refused("POST", one+"/files/mkdir", map[string]string{"path": bad})
			refused("POST", one+"/files/rename", map[string]string{"from": "a", "to": bad})
			refused("POST", one+"/files/rename", map[string]string{"from": bad, "to": "b"})
		}
		refused("POST", one+"/files/extract?path="+q, nil)
		refused("GET", one+"/export?path="+q, nil)
		refused("GET", one+"/diff?path="+q, nil)
		upload, kind := form(t, nil, "f", "x")
		refused("POST", one+"/files/upload?path="+q, upload, kind...)
		for _, method := range []string{"GET", "DELETE", "POST", "PATCH"} {
			refused(method, "/api/templates/default/lobby/files/"+p, "x")
		}
	}
	for _, bad := range []string{"..", "../x", "a/b/c", "a b", `a\b`, "a\x00b", "\xff", ".hidden", "%2e%2e", strings.Repeat("x", 65), "default/..", "../default/lobby"} {
		p := url.PathEscape(bad)
		refused("POST", "/api/v1/templates", map[string]string{"name": bad})
		for _, path := range []string{"", "/files", "/versions", "/history", "/variables", "/export", "/draft", "/diff", "/inheritance", "/search?q=x"} {
			refused("GET", "/api/v1/templates/"+p+path, nil)
		}
		for _, call := range []string{"PATCH ", "PUT /files/content?path=a", "POST /rollback", "POST /files/mkdir?path=d"} {
			method, path, _ := strings.Cut(call, " ")
			refused(method, "/api/v1/templates/"+p+path, `{}`)
		}
		refused("DELETE", "/api/v1/templates/"+p, nil)
		for _, pair := range []string{p + "/lobby", "default/" + p} {
			refused("GET", "/api/templates/"+pair, nil)
			refused("GET", "/api/templates/"+pair+"/files", nil)
			refused("GET", "/api/templates/"+pair+"/files/a", nil)
			refused("POST", "/api/templates/"+pair+"/files/b", "x")
			refused("PATCH", "/api/templates/"+pair+"/files/a", "x")
			refused("DELETE", "/api/templates/"+pair+"/files/a", nil)
			refused("POST", "/api/templates/"+pair+"/export", nil)
			refused("POST", "/api/templates/"+pair+"/import", zipped(t, member{name: "a", content: "b"}))
			refused("POST", "/api/templates/"+pair+"/sync", `{}`)
		}
	}
	for _, bad := range []string{"..", "x", strings.Repeat("0", 15), strings.Repeat("0", 129), "../" + strings.Repeat("0", 64)} {
		refused("DELETE", "/api/v1/templates/lobby/versions/"+url.PathEscape(bad), nil)
		refused("GET", "/api/v1/templates/lobby/files?version="+url.QueryEscape(bad), nil)
		refused("POST", "/api/v1/templates/lobby/rollback", map[string]string{"hash": bad})
	}
	if after := s.records(); after != before {
		t.Errorf("a refused path left\n%s\nbefore\n%s", after, before)
	}
}
