package apigateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// records returns all records that template changes write.
func (s *site) records() string {
	s.t.Helper()
	ref := content.TemplateRef{Group: content.DefaultTemplateGroup, Name: "lobby"}
	heads, _, err1 := store.List(s.t.Context(), s.store, keys.TemplateHeads())
	moves, _, err2 := store.List(s.t.Context(), s.store, keys.TemplateMoves(ref))
	versions, _, err3 := store.List(s.t.Context(), s.store, keys.AllTemplateVersions())
	drafts, _, err4 := store.List(s.t.Context(), s.store, keys.TemplateDrafts())
	operations, err5 := store.Count(s.t.Context(), s.store, keys.TemplateOperations())
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	audit := s.do("GET", "/api/v1/audit", nil).want(200).field("total")
	catalog := s.do("GET", "/api/v1/catalog", nil).want(200).raw
	kept, err := json.MarshalIndent([]any{heads, moves, versions, drafts}, "", " ")
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%s %d %v %s", kept, operations, audit, catalog)
}

func TestADryRunOfACreateTellsTheTemplateAsItWouldBe(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const body = `{"name":"lobby","platform":"paper"}`
	dry := s.do("POST", "/api/v1/templates?dryRun=true", body).want(200)
	made := s.do("POST", "/api/v1/templates", body).want(201).is("platform", "PAPER")
	dry.is("template.hash", made.field("hash")).is("template.platform", "PAPER")
	if at, _ := dry.field("template.updatedAt").(string); at == "" || strings.HasPrefix(at, "0001-") {
		t.Errorf("it would be of %q", at)
	}
}

func TestADryRunOfATemplatesChangeAsksForNoMoreThanTheChange(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	h, _ := s.view.Snapshot().TemplateHeads.Get("default/lobby")
	old := *h // of a version without limits
	old.Description = "\x1b[31m"
	s.commit(store.Replace(keys.TemplateHead(h.TemplateRef), old, h.ModRev))
	for _, sign := range []string{"?dryRun=true", ""} {
		s.do("PATCH", one+sign, `{"description":"\u001b"}`).want(422).naming("description")
		s.do("PATCH", one+sign, `{"platform":"paper"}`).want(200)
	}
}

func TestADryRunOfATemplatesChangeWritesNothing(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	old, _ := s.do("PUT", one+"/files/content?path=a", `{"content":"1"}`).want(200).field("hash").(string)
	s.do("PUT", one+"/files/content?path=a", `{"content":"2"}`).want(200)
	s.do("PUT", one+"/files/content?path=staged&rehash=false", `{"content":"3"}`).want(200)
	upload, uploadKind := form(t, nil, "new", "x")
	made, madeKind := form(t, map[string]string{"name": "made"}, "a.zip", zipped(t, member{name: "a", content: "b"}))
	before := s.records()
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		says               string
	}{
		{"POST", "/api/v1/templates", `{"name":"made"}`, nil, 200, `"name":"made"`},
		{"POST", "/api/v1/templates", `{"name":"lobby"}`, nil, 409, ""},
		{"POST", "/api/v1/templates/import", made, madeKind, 200, `"path":"a"`},
		{"PATCH", one, `{"description":"x"}`, nil, 200, `"description":"x"`},
		{"DELETE", one, "", nil, 200, "lobby"},
		{"DELETE", one + "/versions/" + old, "", nil, 200, old},
		{"POST", one + "/rollback", "", nil, 200, old},
		{"PUT", one + "/files/content?path=n", `{"content":"x"}`, nil, 200, `"path":"n","change":"ADDED"`},
		{"PUT", one + "/files/content?path=n&rehash=false", `{"content":"x"}`, nil, 200, `"path":"n"`},
		{"PUT", one + "/files/content?path=a", `{"content":"x"}`, []string{"If-Match", `"0"`}, 412, ""},
		{"DELETE", one + "/files?path=a", "", nil, 200, `"path":"a","change":"REMOVED"`},
		{"DELETE", one + "/files?path=none", "", nil, 404, ""},
		{"POST", one + "/files/mkdir", `{"path":"d"}`, nil, 200, `"path":"d"`},
		{"POST", one + "/files/rename", `{"from":"a","to":"b"}`, nil, 200, `"path":"b"`},
		{"POST", one + "/files/upload", upload, uploadKind, 200, `"path":"new"`},
		{"PUT", one + "/variables", `[{"key":"k"}]`, nil, 200, `"dryRun":true`},
		{"POST", one + "/rehash", "", nil, 200, `"path":"staged"`},
		{"DELETE", one + "/draft", "", nil, 200, `"dryRun":true`},
		{"POST", "/api/v1/templates/sync", `{"pattern":"*"}`, nil, 200, "DRY_RUN"},
		{"POST", "/api/v1/catalog/paper/versions", `{"version":"1"}`, nil, 400, "dryRun"},
		{"PATCH", "/api/v1/catalog/paper/versions/1", `{}`, nil, 400, "dryRun"},
		{"PUT", "/api/v1/catalog/paper/versions/1/recommended", "", nil, 400, "dryRun"},
		{"DELETE", "/api/v1/catalog/paper/versions/1", "", nil, 400, "dryRun"},
		{"POST", "/api/templates/default/lobby/files/n", "x", nil, 200, `"n"`},
		{"POST", "/api/templates/fresh/one/files/n", "x", nil, 200, `"n"`},
		{"PATCH", "/api/templates/default/lobby/files/a", "x", nil, 200, `"a"`},
		{"DELETE", "/api/templates/default/lobby/files/a", "", nil, 200, `"a"`},
		{"POST", "/api/templates/default/lobby/import", zipped(t, member{name: "z", content: "z"}), nil, 200, `"z"`},
		{"POST", "/api/templates/sync", `{"pattern":"*"}`, nil, 200, "DRY_RUN"},
	} {
		sign := "?"
		if strings.Contains(c.path, "?") {
			sign = "&"
		}
		s.do(c.method, c.path+sign+"dryRun=true", c.body, c.header...).want(c.status).naming(c.says)
		if after := s.records(); after != before {
			t.Fatalf("%s %s wrote:\n%s\nbefore:\n%s", c.method, c.path, after, before)
		}
	}
	s.do("POST", "/api/v1/nodes/none/cache/warm?dryRun=true", nil).want(400)
}
