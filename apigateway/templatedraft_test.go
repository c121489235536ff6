package apigateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestStagedEditsArePublishedAsOneVersion(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	base := s.do("PUT", one+"/files/content?path=a", `{"content":"1"}`).want(200).field("hash")
	s.do("GET", one+"/draft", nil).want(404)
	s.do("DELETE", one+"/draft", nil).want(404)
	s.do("POST", one+"/rehash", nil).want(200).is("status", "unchanged").is("hash", base)

	s.do("PUT", one+"/files/content?path=a&rehash=false", `{"content":"2"}`).want(200)
	s.do("POST", one+"/files/mkdir?path=d&rehash=false", nil).want(200)
	s.do("POST", one+"/files/rename?rehash=false", `{"from":"a","to":"d/b"}`).want(200)
	body, kind := form(t, nil, "up.txt", "up")
	staged := s.do("POST", one+"/files/upload?rehash=false", body, kind...).want(200).field("hash")
	s.do("GET", one, nil).want(200).is("hash", base)
	d := s.do("GET", one+"/draft", nil).want(200).is("base", base).is("edits", 4).is("hash", staged)
	if files, _ := d.field("files").([]any); len(files) != 3 {
		t.Errorf("the draft changes %v", files)
	}
	s.do("GET", one+"/files/content?path=d/b&draft=true", nil).want(200).is("content", "2")
	s.do("GET", one+"/files/content?path=d/b", nil).want(404)
	other := s.user("otto", "OPERATOR")
	other.do("GET", one+"/draft", nil).want(404)
	other.do("GET", one+"/files/content?path=a&draft=true", nil).want(200).is("content", "1")

	other.do("PUT", one+"/files/content?path=theirs", `{"content":"x"}`).want(200)
	now := s.do("POST", one+"/rehash", `{"message":"all at once"}`).want(200).is("status", "published").field("hash")
	s.do("GET", one, nil).want(200).is("hash", now).is("files", 3)
	h := s.do("GET", one+"/history", nil).want(200).is("total", 4)
	if latest, _ := h.data()[0].(map[string]any); latest["message"] != "all at once" || latest["author"] != "admin" {
		t.Errorf("latest move %v", latest)
	}
	s.do("GET", one+"/draft", nil).want(404)

	s.do("PUT", one+"/files/content?path=theirs&rehash=false", `{"content":"mine"}`).want(200)
	other.do("PUT", one+"/files/content?path=theirs", `{"content":"changed"}`).want(200)
	s.do("POST", one+"/rehash", nil).want(409).naming("theirs")
	s.do("DELETE", one+"/draft", nil).want(204)
	s.do("POST", one+"/rehash", nil).want(200).is("status", "unchanged")
	s.do("PUT", one+"/files/content?path=../x&rehash=false", `{"content":"2"}`).want(400)
	s.user("vera", "VIEWER").do("PUT", one+"/files/content?path=a&rehash=false", `{"content":"2"}`).want(403)
}

func TestADraftGoesWithItsUserNotWithTheName(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	otto := s.user("otto", "OPERATOR")
	otto.do("PUT", one+"/files/content?path=a&rehash=false", `{"content":"staged"}`).want(200)
	s.do("PATCH", "/api/v1/users/otto", `{"username":"karl"}`).want(200)
	s.user("otto", "OPERATOR").do("GET", one+"/draft", nil).want(404)
	karl := s.as(s.login("karl", adminPassword))
	karl.do("GET", one+"/draft", nil).want(200).is("edits", 1)
	karl.do("POST", one+"/rehash", nil).want(200).is("status", "published")
	s.do("GET", one+"/files/content?path=a", nil).want(200).is("content", "staged")
}

func TestVariablesAreDefinedAndFound(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	s.do("PUT", one+"/files/content?path=a", `{"content":"%motd% %PORT%"}`).want(200)
	if got := s.do("GET", one+"/variables", nil).want(200).list(); got != "[]" {
		t.Error(got)
	}
	put := func(body string) *reply { return s.do("PUT", one+"/variables", body) }
	want := `[{"key":"motd","type":"STRING","defaultValue":"hi","required":false,"validation":{"max":20},"scope":"GROUP","visibility":"","description":"shown"},` +
		`{"key":"pw","type":"SECRET","defaultValue":"***","required":true,"validation":{},"scope":"INSTANCE","visibility":"ADMIN","description":""}]`
	if got := put(`[{"key":"motd","type":"STRING","defaultValue":"hi","validation":{"max":20},"scope":"GROUP","description":"shown"},
		{"key":"pw","type":"SECRET","defaultValue":"env:PW","required":true,"scope":"INSTANCE","visibility":"ADMIN"}]`).want(200).list(); got != want {
		t.Error(got)
	}
	if got := s.do("GET", one+"/variables", nil).want(200).list(); got != want {
		t.Error(got)
	}
	if got := s.do("GET", one+"/variables/scan", nil).want(200).list(); !strings.Contains(got, `{"key":"motd","defined":true,"builtIn":false`) {
		t.Error(got)
	}
	before := s.do("GET", one, nil).field("hash")
	for name, body := range map[string]string{
		"[0].key": `[{"key":"a b"}]`, "[0].type": `[{"key":"a","type":"LIST"}]`, "[1].key": `[{"key":"a"},{"key":"a"}]`,
		"PORT is a built-in placeholder": `[{"key":"PORT","defaultValue":"1"}]`, "PORT_QUERY is a built-in placeholder": `[{"key":"PORT_QUERY"}]`,
		"[0].defaultValue": `[{"key":"a","type":"SECRET","defaultValue":"secret:../x"}]`, "[0].validation.enumValues": `[{"key":"a","type":"ENUM"}]`,
	} {
		put(body).want(422).is("error.code", "VARIABLE_DEFINITION_INVALID").naming(name)
	}
	put(`{}`).want(400)
	put(`[{"name":"a"}]`).want(400)
	s.do("GET", one, nil).want(200).is("hash", before)
	s.do("PUT", one+"/files/content?path=b", `{"content":"x"}`).want(200)
	if got := s.do("GET", one+"/variables", nil).want(200).list(); got != want {
		t.Errorf("after an edit %s", got)
	}
	put(`[]`).want(200)
	if got := s.do("GET", one+"/variables", nil).want(200).list(); got != "[]" {
		t.Error(got)
	}
}

func TestDefaultsForAdministratorsAreKeptAndNoneIsReplacedByItsMask(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	const all = `[{"key":"key","type":"STRING","defaultValue":"mine","scope":"GROUP","visibility":"ADMIN"},
		{"key":"pw","type":"SECRET","defaultValue":"env:PW","scope":"GROUP"},{"key":"open","defaultValue":"x","scope":"GROUP"}]`
	s.do("PUT", one+"/variables", all).want(200)
	hash := s.do("GET", one, nil).field("hash")
	operator := s.user("otto", "OPERATOR")
	const key, rest = `{"key":"key","type":"STRING","defaultValue":"***","scope":"GROUP","visibility":"ADMIN"}`, `{"key":"pw","type":"SECRET","defaultValue":"***"},{"key":"open","defaultValue":"x"}`
	for what, body := range map[string]string{
		"removed":        `[` + rest + `]`,
		"renamed":        `[` + strings.Replace(key, `:"key"`, `:"other"`, 1) + `,` + rest + `]`,
		"another type":   `[` + strings.Replace(key, "STRING", "BOOL", 1) + `,` + rest + `]`,
		"shown":          `[` + strings.Replace(key, `,"visibility":"ADMIN"`, "", 1) + `,` + rest + `]`,
		"another value":  `[` + strings.Replace(key, "***", "theirs", 1) + `,` + rest + `]`,
		"guessed":        `[` + strings.Replace(key, "***", "mine", 1) + `,` + rest + `]`,
		"tried by regex": `[` + strings.Replace(key, "{", `{"validation":{"regex":"m.*"},`, 1) + `,` + rest + `]`,
	} {
		if r := operator.do("PUT", one+"/variables", body); r.status != 403 || !strings.Contains(r.raw, "administrators") {
			t.Errorf("%s: %d %s", what, r.status, r.raw)
		}
	}
	for what, body := range map[string]string{
		"another name":     `[` + key + `,{"key":"pw2","type":"SECRET","defaultValue":"***"}]`,
		"no secret":        `[` + key + `,{"key":"pw","type":"STRING","defaultValue":"***"}]`,
		"what is shown":    `[` + key + `,{"key":"open","defaultValue":"***"}]`,
		"a new one":        `[` + key + `,{"key":"new","defaultValue":"***"}]`,
		"a new one hidden": `[` + key + `,{"key":"new","defaultValue":"***","visibility":"ADMIN"}]`,
	} {
		for who, as := range map[string]*site{"operator": operator, "admin": s.site} {
			if r := as.do("PUT", one+"/variables", body); r.status != 422 || !strings.Contains(r.raw, "[1].defaultValue") {
				t.Errorf("%s by %s: %d %s", what, who, r.status, r.raw)
			}
		}
	}
	s.do("GET", one, nil).want(200).is("hash", hash)
	for _, kept := range []string{key, strings.Replace(key, `"defaultValue":"***",`, "", 1)} {
		operator.do("PUT", one+"/variables", `[`+kept+`,`+rest+`]`).want(200)
	}
	operator.do("PUT", one+"/variables", `[`+key+`,{"key":"open","defaultValue":"y"}]`).want(200)
	if got := s.do("GET", one+"/variables", nil).want(200).list(); !strings.Contains(got, `"defaultValue":"mine"`) || !strings.Contains(got, `"defaultValue":"y"`) {
		t.Error(got)
	}
	s.do("PUT", one+"/variables", `[{"key":"other","defaultValue":"z"}]`).want(200)
}

func TestWhoIsNotShownAValueGetsRidOfItsDefinitionByNoWay(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	s.do("PUT", one+"/variables", `[{"key":"key","visibility":"ADMIN"}]`).want(200)
	hash := s.do("GET", one, nil).field("hash")
	operator := s.user("otto", "OPERATOR")
	for _, dry := range []string{"", "?dryRun=true"} {
		operator.do("POST", one+"/rollback"+dry, nil).want(403).naming("key")
		operator.do("GET", one, nil).want(200).is("hash", hash)
	}
	s.do("POST", one+"/rollback?dryRun=true", nil).want(200)
	s.do("POST", one+"/rollback", nil).want(200)
	s.do("PUT", one+"/variables", `[{"key":"key","visibility":"ADMIN"}]`).want(200)
	operator.do("POST", one+"/rollback", `{"hash":"`+fmt.Sprint(hash)+`"}`).want(200)
	s.do("DELETE", one, nil).want(204)
}

func TestDefinitionsAreComputedFromWhatTheyReplace(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	s.do("PUT", one+"/variables", `[{"key":"pw","type":"SECRET","defaultValue":"env:OLD"}]`).want(200)
	const again = `[{"key":"pw","type":"SECRET","defaultValue":"***","description":"again"}]`
	stored := func() string {
		t.Helper()
		h, err := store.Get(t.Context(), s.store, keys.TemplateHead(content.ParseTemplateRef("lobby")))
		if err != nil || len(h.Variables) != 1 || h.Variables[0].Default == nil {
			t.Fatal(h.Variables, err)
		}
		return *h.Variables[0].Default
	}

	// The definitions change between the read and the computed change.
	var seen atomic.Bool
	s.through(func(r *http.Request) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/variables") && seen.CompareAndSwap(false, true) {
			if reply, err := s.try("PUT", one+"/variables", `[{"key":"pw","type":"SECRET","defaultValue":"env:NEW"}]`); err != nil || reply.status != http.StatusOK {
				t.Errorf("the other change: %v, %v", reply, err)
			}
		}
	})
	s.do("PUT", one+"/variables", again).want(200)
	if got := stored(); got != "env:NEW" {
		t.Errorf("the default became %s", got)
	}

	// Values come from the staged version, not from the published one.
	s.do("PUT", one+"/variables?rehash=false", `[{"key":"pw","type":"SECRET","defaultValue":"env:STAGED"}]`).want(200)
	s.do("PUT", one+"/variables?rehash=false", again).want(200)
	s.do("POST", one+"/rehash", nil).want(200).is("status", "published")
	if got := stored(); got != "env:STAGED" {
		t.Errorf("the default became %s", got)
	}
}

// through connects the gateway to templatesvc through a proxy that passes every request to see first.
func (s *shelf) through(see func(*http.Request)) {
	s.t.Helper()
	session := *s.view.Snapshot().ServiceSessions("templatesvc")[0]
	to, err := url.Parse(session.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(to)
	transport := &http.Transport{DisableKeepAlives: true}
	pass.Transport = transport
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		see(r)
		pass.ServeHTTP(w, r)
	}))
	s.t.Cleanup(proxy.Close)
	session.URL = proxy.URL
	s.commit(store.Replace(keys.Session("templatesvc", session.Replica), session, session.ModRev))
}

func TestWhatDiffersBetweenVersionsIsTold(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	s.do("GET", one+"/diff", nil).want(404)
	first, _ := s.do("PUT", one+"/files/content?path=a", `{"content":"one\n"}`).want(200).field("hash").(string)
	s.do("PUT", one+"/files/content?path=b", `{"content":"b"}`).want(200)
	last := s.do("PUT", one+"/files/content?path=a", `{"content":"two\n"}`).want(200).field("hash")
	r := s.do("GET", one+"/diff", nil).want(200).is("to", last).is("truncated", false)
	files, _ := r.field("files").([]any)
	if m, _ := files[0].(map[string]any); len(files) != 1 || m["path"] != "a" || m["change"] != "CHANGED" || m["oldSize"] != 4.0 {
		t.Errorf("differs %v", files)
	}
	if files, _ := s.do("GET", one+"/diff?from="+first, nil).want(200).field("files").([]any); len(files) != 2 {
		t.Errorf("differs %v", files)
	}
	s.do("GET", one+"/diff?path=a", nil).want(200).is("unified", "--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-one\n+two\n")
	s.do("GET", one+"/diff?path=b", nil).want(200).is("unified", "").is("files", []any{})
	s.do("GET", one+"/diff?path=none", nil).want(404)
	s.do("GET", one+"/diff?path=../a", nil).want(400)
	s.do("GET", one+"/diff?from=x", nil).want(400)
	s.do("GET", one+"/diff?from="+strings.Repeat("0", 64), nil).want(404)
	body, kind := form(t, nil, "bin", "\x00")
	s.do("POST", one+"/files/upload", body, kind...).want(200)
	s.do("GET", one+"/diff?path=bin", nil).want(415).is("error.code", "BINARY_FILE")
}
