package apigateway

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestAChangeOfATemplateThatMovedMeanwhileIs412(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	file := s.do("PUT", one+"/files/content?path=a", `{"content":"1"}`).want(200).header.Get("ETag")
	s.do("PUT", one+"/files/content?path=b&rehash=false", `{"content":"2"}`).want(200)
	draft := s.do("GET", one+"/draft", nil).want(200).header.Get("ETag")
	old := s.do("GET", one, nil).want(200).header.Get("ETag")
	if vars := s.do("GET", one+"/variables", nil).want(200).header.Get("ETag"); vars != old || old == "" || draft == "" || draft == old {
		t.Fatalf("the template is at %s, its variables at %s, the draft at %s", old, vars, draft)
	}
	s.do("PATCH", one, `{"description":"moved"}`, "If-Match", old).want(200)
	s.do("PUT", one+"/files/content?path=c&rehash=false", `{"content":"3"}`, "If-Match", draft).want(200)
	late := []struct{ method, path, body, match string }{
		{"PATCH", "", `{"description":"late"}`, old},
		{"DELETE", "", "", old},
		{"PUT", "/variables", `[{"key":"late"}]`, old},
		{"POST", "/rollback", "", old},
		{"PUT", "/files/content?path=a", `{"content":"late"}`, old},
		{"PUT", "/files/content?path=a", `{"content":"late"}`, `"0000000000000000000000000000000000000000000000000000000000000000"`},
		{"DELETE", "/files?path=a", "", old},
		{"POST", "/files/rename", `{"from":"a","to":"late"}`, old},
		{"POST", "/files/mkdir", `{"path":"late"}`, old},
		{"POST", "/rehash", "", draft},
		{"DELETE", "/draft", "", draft},
	}
	before := s.revision()
	for _, c := range late {
		s.do(c.method, one+c.path, c.body, "If-Match", c.match).want(412)
	}
	s.do("PATCH", "/api/templates/default/lobby/files/a", "late", "If-Match", `"00"`).want(412)
	s.do("PATCH", one, `{}`, "If-Match", "x").want(400)
	s.do("POST", one+"/rollback", nil, "If-Match", "x").want(400)
	if head, ok := s.view.Snapshot().TemplateHeads.Get("default/lobby"); !ok || head.ModRev > before {
		t.Errorf("a late change moved the head: %+v", head)
	}

	now := s.do("GET", one, nil).want(200).header.Get("ETag")
	now = s.do("PUT", one+"/variables", `[{"key":"k"}]`, "If-Match", now).want(200).header.Get("ETag")
	now = s.do("POST", one+"/rollback", nil, "If-Match", now).want(200).header.Get("ETag")
	now = s.do("POST", one+"/files/mkdir", `{"path":"d"}`, "If-Match", now).want(200).header.Get("ETag")
	s.do("DELETE", one+"/files?path=a", nil, "If-Match", file).want(204)
	s.do("DELETE", one, nil, "If-Match", now).want(412)
	if got := s.do("GET", "/api/templates/default/lobby/files/a", nil); got.status != 404 {
		t.Errorf("read %d", got.status)
	}
	draft = s.do("GET", one+"/draft", nil).want(200).header.Get("ETag")
	now = s.do("POST", one+"/rehash", nil, "If-Match", draft).want(200).is("status", "published").header.Get("ETag")
	s.do("POST", one+"/rehash", nil, "If-Match", draft).want(412)
	s.do("POST", one+"/rehash", nil).want(200).is("status", "unchanged")
	s.do("DELETE", one, nil, "If-Match", now).want(204)
}

func TestATemplatesChangeSentAgainWithItsKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`, "Idempotency-Key", "k").want(201)
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`, "Idempotency-Key", "k").want(201)
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`, "Idempotency-Key", "other").want(409)
	s.do("PUT", one+"/files/content?path=a", `{"content":"1"}`).want(200)
	s.do("PUT", one+"/files/content?path=a", `{"content":"2"}`).want(200)
	renamed := s.do("POST", one+"/files/rename", `{"from":"a","to":"b"}`, "Idempotency-Key", "k").want(200).field("hash")
	s.do("PUT", one+"/files/content?path=c", `{"content":"3"}`).want(200)
	s.do("POST", one+"/files/rename", `{"from":"a","to":"b"}`, "Idempotency-Key", "k").want(200).is("hash", renamed)
	back := s.do("POST", one+"/rollback", nil, "Idempotency-Key", "k").want(200).field("hash")
	s.do("POST", one+"/rollback", nil, "Idempotency-Key", "k").want(200).is("hash", back)
	s.do("GET", one+"/history", nil).want(200).is("total", 6)
	s.do("PUT", one+"/files/content?path=d", `{"content":"4"}`, "Idempotency-Key", "k").want(200)
	s.do("PUT", one+"/files/content?path=e", `{"content":"5"}`, "Idempotency-Key", "k").want(200)
	s.do("GET", one+"/files/content?path=e", nil).want(200).is("content", "5")
	s.do("PUT", one+"/files/content?path=d", `{"content":"4"}`, "Idempotency-Key", "k").want(200)
	s.do("GET", one+"/history", nil).want(200).is("total", 8)
	other := s.user("oda", "ADMIN")
	other.do("POST", one+"/rollback", nil, "Idempotency-Key", "k").want(200)
	s.do("GET", one+"/history", nil).want(200).is("total", 9)
}

func TestAKeyThatWasAnotherChangesIsRefused(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	const refused = "was given within the hour to another change"
	keyed := []string{"Idempotency-Key", "k"}
	again := func(method, path string, first, other any, status int, header ...string) {
		t.Helper()
		header = append(header, keyed...)
		made := s.do(method, path, first, header...).want(status)
		s.do(method, path, other, header...).want(422).naming(refused)
		if same := s.do(method, path, first, header...).want(status); same.raw != made.raw {
			t.Errorf("%s %s was answered %s, then %s", method, path, made.raw, same.raw)
		}
	}
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`, keyed...).want(201)
	s.do("POST", "/api/v1/templates", `{"name":"other"}`, keyed...).want(422).naming(refused)
	second := newSiteOn(t, s.etcd) // another replica compares it too
	second.token = second.login("admin", adminPassword)
	await.That(t, "it knows the template service", func() string {
		return await.Unless(len(second.view.Snapshot().ServiceSessions("templatesvc")) == 1, "no session")
	})
	second.do("POST", "/api/v1/templates", `{"name":"lobby"}`, keyed...).want(201)
	second.do("POST", "/api/v1/templates", `{"name":"other"}`, keyed...).want(422).naming(refused)
	again("PUT", one+"/files/content?path=a", `{"content":"1"}`, `{"content":"2"}`, 200)
	again("POST", one+"/files/rename", `{"from":"a","to":"b"}`, `{"from":"b","to":"c"}`, 200)
	again("PUT", one+"/variables", `[{"key":"pw","type":"SECRET","defaultValue":"`+recognisable+`"}]`, `[]`, 200)
	again("PATCH", "/api/templates/default/lobby/files/d", "1", "2", 200)
	again("POST", "/api/templates/default/lobby/import", zipped(t, member{name: "x", content: "1"}), zipped(t, member{name: "x", content: "2"}), 200)
	again("POST", one+"/rollback", nil, `{"hash":"`+strings.Repeat("0", 64)+`"}`, 200)

	// Equal files are equal uploads, however the form encodes them.
	for n, content := range []string{"1", "1", "2"} {
		body, kind := form(t, nil, "up", content)
		s.do("POST", one+"/files/upload", body, append(kind, keyed...)...).want([]int{200, 200, 422}[n])
	}
	s.nowhere(recognisable)
}

func TestWhatIsMadeOfABodyMayDifferWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	const defined = `[{"key":"pw","type":"SECRET","defaultValue":"` + recognisable + `"}]`
	s.do("PUT", one+"/variables", defined, "Idempotency-Key", "k").want(200)
	made := s.do("GET", one+"/history", nil).field("total")
	s.do("PUT", one+"/variables", `[]`).want(200)
	s.do("PUT", one+"/variables", defined, "Idempotency-Key", "k").want(200) // sealed again, the text differs
	s.do("PUT", one+"/variables", `[{"key":"other"}]`, "Idempotency-Key", "k").want(422)
	if now := s.do("GET", one+"/history", nil).field("total"); now != 3.0 || made != 2.0 {
		t.Errorf("%v moves, then %v", made, now)
	}

	n := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("game", map[string]any{"memoryMb": 64})
	s.status(s.start("game"), "node-1", fleet.Status{State: fleet.Online})
	for _, content := range []string{"1", "2"} { // the server changes a saved file
		n.mu.Lock()
		n.saved = packed(t, "a.yml", content, client.ExportReportName, `{"files":1,"skipped":[]}`)
		n.mu.Unlock()
		s.do("POST", "/api/v1/services/game-1/save-to-template", `{"template":"lobby"}`, "Idempotency-Key", "k").want(200)
		if got := s.text("lobby", "a.yml"); got != "1" {
			t.Errorf("saved %q", got)
		}
	}
	s.do("POST", "/api/v1/services/game-1/save-to-template", `{"template":"lobby","pathPrefix":"x"}`, "Idempotency-Key", "k").want(422)
	s.nowhere(recognisable)
}

func TestALongListOfATemplateComesInPages(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	var names []string
	for _, name := range []string{"a", "b", "c"} {
		names = append(names, name, "motd="+name)
	}
	body, kind := form(t, nil, names...)
	s.do("POST", one+"/files/upload", body, kind...).want(200)
	for _, c := range []struct {
		query    string
		list     int
		complete bool
	}{{"", 3, true}, {"?pageSize=2", 2, false}, {"?pageSize=2&page=2", 1, true}, {"?pageSize=3&page=2", 0, true}, {"?page=999999999999", 0, true}, {"?pageSize=0&page=-1", 1, false}} {
		r := s.do("GET", one+"/files"+c.query, nil).want(200)
		if list, _ := r.body.([]any); len(list) != c.list || r.header.Get("X-Total-Count") != "3" || (r.header.Get("Warning") == "") != c.complete {
			t.Errorf("%q: %s, %v", c.query, r.raw, r.header)
		}
	}
	s.do("GET", one+"/files?page=x", nil).want(400)
	if r := s.do("GET", one+"/versions?pageSize=1", nil).want(200); r.header.Get("X-Total-Count") != "2" || r.header.Get("Warning") == "" {
		t.Errorf("%s, %v", r.raw, r.header)
	}
	if r := s.do("GET", one+"/search?q=motd&maxResults=2", nil).want(200); r.header.Get("Warning") == "" {
		t.Errorf("a search that was cut says nothing: %s", r.raw)
	}
	if r := s.do("GET", one+"/search?q=motd", nil).want(200); r.header.Get("Warning") != "" {
		t.Errorf("a search that was not cut warns: %s", r.header.Get("Warning"))
	}
}
