package apigateway

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestAnAppliedDocumentIsStoredReadListedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/quotas/acme", acme).want(201)
	s.do("GET", "/api/v1/applied", nil).want(200).is("total", 0).is("data", []any{})
	doc := `{"document":{"limit":{"memoryMb":1024},"big":12345678901234567890,"text":"<&>"}}`
	s.do("PUT", "/api/v1/applied/quota/acme?dryRun=true", doc).want(200).is("action", "create").is("kind", "quota").is("name", "acme")
	s.do("GET", "/api/v1/applied/quota/acme", nil).want(404).naming("no document was applied for quota acme")
	made := s.do("PUT", "/api/v1/applied/quota/acme", doc).want(201).is("kind", "quota").is("name", "acme").is("appliedBy", "admin").naming("12345678901234567890")
	if made.header.Get("Location") != "/api/v1/applied/quota/acme" {
		t.Errorf("headers %v", made.header)
	}
	read := s.do("GET", "/api/v1/applied/quota/acme", nil).want(200)
	if read.raw != made.raw || read.header.Get("ETag") != made.header.Get("ETag") {
		t.Errorf("read %s\nmade %s", read.raw, made.raw)
	}
	list := s.do("GET", "/api/v1/applied?kind=quota", nil).want(200).is("total", 1).is("data.0.name", "acme").is("data.0.appliedBy", "admin")
	if strings.Contains(list.raw, "document") {
		t.Errorf("the list has documents: %s", list.raw)
	}
	s.do("GET", "/api/v1/applied?kind=group", nil).want(200).is("total", 0)
	before := s.revision()
	s.do("PUT", "/api/v1/applied/quota/acme?dryRun=true", read.raw).want(200).is("action", "none")
	if same := s.do("PUT", "/api/v1/applied/quota/acme", read.raw).want(200); same.raw != read.raw || same.header.Get("ETag") != read.header.Get("ETag") {
		t.Errorf("stored again: %s", same.raw)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("storing the same document wrote %v", keys)
	}
	tag := read.header.Get("ETag")
	s.do("PUT", "/api/v1/applied/quota/acme", `{"document":{}}`, "If-None-Match", "*").want(412)
	next := s.do("PUT", "/api/v1/applied/quota/acme", `{"document":{}}`, "If-Match", tag).want(200).is("document", map[string]any{})
	s.do("PUT", "/api/v1/applied/quota/acme", doc, "If-Match", tag).want(412)
	s.do("DELETE", "/api/v1/applied/quota/acme", nil, "If-Match", tag).want(412)
	s.do("DELETE", "/api/v1/applied/quota/acme?dryRun=true", nil).want(200).is("action", "delete")
	s.do("DELETE", "/api/v1/applied/quota/acme", nil, "If-Match", next.header.Get("ETag")).want(204)
	s.do("DELETE", "/api/v1/applied/quota/acme", nil).want(404)
	s.do("GET", "/api/v1/quotas/acme", nil).want(200)
}

// declared returns a site with an object of every kind that has documents.
func declared(t *testing.T) (s *site, objects map[applied.Kind]string) {
	t.Helper()
	s = newSite(t)
	s.group("lobby", nil)
	for _, made := range [][2]string{
		{"PUT /api/v1/quotas/acme", creates["PUT /api/v1/quotas/:name"]},
		{"PUT /api/v1/bindings/mods", creates["PUT /api/v1/bindings/:name"]},
		{"PUT /api/v1/schedules/nightly", creates["PUT /api/v1/schedules/:name"]},
		{"PUT /api/v1/overlays/evening", creates["PUT /api/v1/overlays/:name"]},
		{"PUT /api/v1/notices/ops", creates["PUT /api/v1/notices/:name"]},
		{"PUT /api/v1/template-sources/repo", creates["PUT /api/v1/template-sources/:name"]},
		{"POST /api/v1/networks", `{"name":"net","lobbyGroup":"lobby"}`},
		{"POST /api/v1/catalog/paper/versions", creates["POST /api/v1/catalog/:platform/versions"]},
		{"POST /api/v1/roles", `{"name":"GUARD","permissions":[]}`},
	} {
		method, path, _ := strings.Cut(made[0], " ")
		s.do(method, path, made[1]).want(201)
	}
	return s, map[applied.Kind]string{
		applied.Network: "networks/net", applied.Schedule: "schedules/nightly", applied.Overlay: "overlays/evening",
		applied.Quota: "quotas/acme", applied.Notice: "notices/ops", applied.Role: "roles/GUARD", applied.Binding: "bindings/mods",
		applied.TemplateSource: "template-sources/repo", applied.Catalog: "catalog/PAPER", applied.Group: "groups/lobby",
	}
}

func TestAnAppliedDocumentIsRemovedWithItsObject(t *testing.T) {
	t.Parallel()
	s, objects := declared(t)
	for _, kind := range applied.Kinds() {
		_, name, _ := strings.Cut(objects[kind], "/")
		s.do("PUT", "/api/v1/applied/"+string(kind)+"/"+strings.ToLower(name), `{"document":{}}`).want(201).is("name", name)
	}
	s.do("GET", "/api/v1/applied", nil).want(200).is("total", len(applied.Kinds()))
	for n, kind := range []applied.Kind{
		applied.Network, applied.Schedule, applied.Overlay, applied.Quota, applied.Notice, applied.Role, applied.Binding, applied.TemplateSource, applied.Catalog, applied.Group,
	} {
		path := "/api/v1/" + objects[kind]
		_, name, _ := strings.Cut(objects[kind], "/")
		if kind == applied.Catalog {
			path += "/versions/1.21"
		}
		if r := s.do("DELETE", path, nil); r.status/100 != 2 {
			t.Fatalf("%s: %d %s", r.what, r.status, r.raw)
		}
		s.do("GET", "/api/v1/applied/"+string(kind)+"/"+name, nil).want(404)
		s.do("PUT", "/api/v1/applied/"+string(kind)+"/"+name, `{"document":{}}`).want(404).naming("create the object")
		s.do("GET", "/api/v1/applied", nil).want(200).is("total", len(applied.Kinds())-n-1)
	}
}

func TestAnAppliedDocumentHasNoSecrets(t *testing.T) {
	t.Parallel()
	s, _ := declared(t)
	s.do("PUT", "/api/v1/applied/notice/ops", `{"document":{"url":"https://discord.com/api/webhooks/1/TOKEN","events":["*"]}}`).want(201).
		is("document.url", "https://discord.com/***")
	s.do("PUT", "/api/v1/applied/group/lobby", `{"document":{"rcon":{"port":"rcon","password":"CLEAR"},"variableValues":{"key":"sealed:CLEAR","motd":"hi"}}}`).want(201).
		is("document.rcon.password", "***").is("document.rcon.port", "rcon").is("document.variableValues.key", "***").is("document.variableValues.motd", "hi")
	before := s.revision()
	s.do("PUT", "/api/v1/applied/notice/ops", `{"document":{"secret":"0123456789abcdef"}}`).want(422).naming("document.secret")
	s.do("PUT", "/api/v1/applied/notice/ops", `{"document":{"Secret":"0123456789abcdef"}}`).want(422).naming("document.Secret")
	s.do("PUT", "/api/v1/applied/template-source/repo", `{"document":{"credentials":{"token":"x"}}}`).want(422).naming("document.credentials")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused document was written: %v", keys)
	}
	for _, k := range []keys.Key[applied.Record]{keys.Applied(applied.Notice, "ops"), keys.Applied(applied.Group, "lobby")} {
		r, err := store.Get(t.Context(), s.store, k)
		if err != nil || strings.Contains(string(r.Document), "CLEAR") || strings.Contains(string(r.Document), "TOKEN") {
			t.Errorf("stored: %s, %v", r.Document, err)
		}
	}
}

func TestAnAppliedDocumentTakesThePermissionsOfItsKind(t *testing.T) {
	t.Parallel()
	s, _ := declared(t)
	s.do("PUT", "/api/v1/applied/group/lobby", `{"document":{"env":{"A":"B"},"minInstances":1}}`).want(201)
	s.do("PUT", "/api/v1/applied/notice/ops", `{"document":{}}`).want(201)
	s.do("POST", "/api/v1/roles", `{"name":"KEEPER","permissions":["groups.view","groups.update"]}`).want(201)
	keeper, viewer := s.user("kim", "KEEPER"), s.user("vera", "VIEWER")
	viewer.do("GET", "/api/v1/applied", nil).want(200).is("total", 1).is("data.0.kind", "group")
	viewer.do("GET", "/api/v1/applied?kind=notice", nil).want(403)
	viewer.do("GET", "/api/v1/applied/notice/ops", nil).want(403)
	viewer.do("PUT", "/api/v1/applied/group/lobby", `{"document":{}}`).want(403)
	viewer.do("DELETE", "/api/v1/applied/group/lobby", nil).want(403)
	read := keeper.do("GET", "/api/v1/applied/group/lobby", nil).want(200).is("document.minInstances", 1)
	if strings.Contains(read.raw, "env") {
		t.Errorf("shown without groups.env: %s", read.raw)
	}
	keeper.do("PUT", "/api/v1/applied/group/lobby", `{"document":{"minInstances":2}}`).want(200)
	s.do("GET", "/api/v1/applied/group/lobby", nil).want(200).is("document", map[string]any{"env": map[string]any{"A": "B"}, "minInstances": 2})
}

func TestABadDocumentIsRefusedAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/quotas/acme", acme).want(201)
	before := s.revision()
	for name, c := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"an unknown kind":             {"secret/x", `{"document":{}}`, 404, "template-source"},
		"an object that is not there": {"quota/other", `{"document":{}}`, 404, "there is no quota other"},
		"no document":                 {"quota/acme", `{}`, 422, "document"},
		"null":                        {"quota/acme", `{"document":null}`, 422, "document"},
		"a list":                      {"quota/acme", `{"document":[]}`, 422, "document"},
		"an unknown field":            {"quota/acme", `{"documents":{}}`, 400, "documents"},
		"another name":                {"quota/acme", `{"name":"other","document":{}}`, 422, "other"},
		"another kind":                {"quota/acme", `{"kind":"group","document":{}}`, 422, "group"},
		"a key that is given twice":   {"quota/acme", `{"document":{"a":1,"a":2}}`, 400, "twice"},
		"more than 64 KiB":            {"quota/acme", `{"document":{"a":"` + strings.Repeat("x", applied.MaxDocument) + `"}}`, 413, "64 KiB"},
		"a source that cannot exist":  {"template-source/.x", `{"document":{}}`, 404, "there is no template-source"},
	} {
		t.Run(name, func(t *testing.T) {
			sub := *s
			sub.t = t
			sub.do("PUT", "/api/v1/applied/"+c.path, c.body).want(c.status).naming(c.says)
		})
	}
	s.do("GET", "/api/v1/applied?kind=secret", nil).want(422).naming("template-source")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused document wrote %v", keys)
	}
	if _, err := store.Get(t.Context(), s.store, keys.Applied(applied.Quota, "acme")); !errs.Is(err, errs.NotFound) {
		t.Errorf("there is a document: %v", err)
	}
}
