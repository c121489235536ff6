package apigateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// shelf is a gateway with a template service.
type shelf struct {
	*site
	// dir is the template directory, configurations the directory for sources.
	dir, configurations string
}

// newShelf starts a template service on a site's store.
func newShelf(s *site) *shelf {
	s.t.Helper()
	sh := &shelf{site: s, dir: s.t.TempDir(), configurations: s.t.TempDir()}
	if _, err := s.view.WaitRev(s.t.Context(), egresstest.AllowLoopback(s.t, s.store)); err != nil { // the tests' servers listen there
		s.t.Fatal(err)
	}
	service, err := templatesvc.New(templatesvc.Config{
		Store: s.etcd.Client(s.t), Dir: sh.dir, ConfigurationsDir: sh.configurations, Quiet: 50 * time.Millisecond, BlobDir: s.t.TempDir(), ClusterSecret: secret, Replica: "shelf",
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = service.Run(ctx) })
	s.t.Cleanup(func() { cancel(); wg.Wait() })
	select {
	case <-service.Synced():
	case <-time.After(await.Patience):
		s.t.Fatal("the template service does not begin")
	}
	await.That(s.t, "the gateway knows the template service", func() string {
		return await.Unless(len(s.view.Snapshot().ServiceSessions("templatesvc")) == 1, "no session")
	})
	return sh
}

// drop writes files into the template directory and waits until the gateway has them.
func (s *shelf) drop(ref string, files map[string]string) *content.TemplateHead {
	s.t.Helper()
	before, _ := s.view.Snapshot().TemplateHeads.Get(ref)
	for name, content := range files {
		p := filepath.Join(s.dir, ref, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	var head *content.TemplateHead
	await.That(s.t, "published", func() string {
		h, ok := s.view.Snapshot().TemplateHeads.Get(ref)
		if !ok || before != nil && h.Digest == before.Digest {
			return "not yet"
		}
		head = h
		v, err := store.Get(s.t.Context(), s.store, keys.TemplateVersion(h.TemplateRef, h.Digest))
		return await.Unless(err == nil && v.Files >= len(files), "%+v, %v", v, err)
	})
	return head
}

// list returns a list response as compact JSON.
func (r *reply) list() string {
	r.t.Helper()
	if _, ok := r.body.([]any); !ok {
		r.t.Fatalf("%s: no bare array: %s", r.what, r.raw)
	}
	return strings.TrimSpace(r.raw)
}

// hostile are URL paths that lead out of a template or that no file can have.
var hostile = []string{
	"..", "../x", "..%2fx", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e%2fx", "%2e%2e/x", "a%2f..%2f..%2fx", "..%5cx", "a%5c..%5cx",
	"%2fetc%2fpasswd", "%2f%2fx", "a%00b", "%00", "a%0ab", "%ff%fe", ".orrery-lock", ".orrery-lock%2fx", "a%2f", "a%2f%2fb", ".%2fa",
	strings.Repeat("a", 256), strings.Repeat("a%2f", 70) + "a",
}

func TestATemplatesFilesAreShown(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	h := s.drop("default/lobby", map[string]string{
		"server.properties": "port=%PORT%\nmotd=%motd% on %NODE_ID%\n", "plugins/a.yml": "Hello: 1\n", "plugins/b.jar": "\x00\x01", "odd/a+b c%.txt": "ü",
	})
	s.do("GET", "/api/v1/templates", nil).want(200).is("total", 1)
	s.do("GET", "/api/v1/templates/lobby", nil).want(200).is("name", "lobby").is("group", "default").is("hash", h.Digest)

	for path, want := range map[string]string{"": "odd/ plugins/ server.properties", "?path=plugins": "a.yml b.jar", "?path=/": "odd/ plugins/ server.properties"} {
		var names []string
		var entries []struct {
			Name        string
			IsDirectory bool
		}
		if err := json.Unmarshal([]byte(s.do("GET", "/api/v1/templates/lobby/files"+path, nil).want(200).list()), &entries); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDirectory {
				e.Name += "/"
			}
			names = append(names, e.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	r := s.do("GET", "/api/v1/templates/lobby/files/content?path=plugins/a.yml", nil).want(200).
		is("path", "plugins/a.yml").is("content", "Hello: 1\n").is("size", 9).is("version", h.Digest)
	if sum, _ := r.field("sha256").(string); r.header.Get("ETag") != `"`+sum+`"` || len(sum) != 64 {
		t.Errorf("ETag %s of %s", r.header.Get("ETag"), r.raw)
	}
	r = s.do("GET", "/api/v1/templates/lobby/files/download?path=plugins/b.jar", nil).want(200)
	if r.raw != "\x00\x01" || r.header.Get("Content-Disposition") != `attachment; filename="b.jar"` || r.header.Get("Content-Length") != "2" {
		t.Errorf("%q, %v", r.raw, r.header)
	}
	s.do("GET", "/api/v1/templates/lobby/files/content?path=plugins/b.jar", nil).want(415).is("error.code", "BINARY_FILE")
	s.do("GET", "/api/v1/templates/lobby/files/content?path=odd/a%2Bb%20c%25.txt", nil).want(200).is("content", "ü")

	if got := s.do("GET", "/api/v1/templates/lobby/search?q=HELLO", nil).want(200).list(); got != `[{"path":"plugins/a.yml","line":1,"column":1,"preview":"Hello: 1","content":"Hello: 1","matchStart":0,"matchEnd":5}]` {
		t.Error(got)
	}
	s.do("GET", "/api/v1/templates/lobby/search", nil).want(400).naming("q")
	s.do("GET", "/api/v1/templates/lobby/search?q=x&maxResults=many", nil).want(400).naming("maxResults")
	if got := s.do("GET", "/api/v1/templates/lobby/variables/scan", nil).want(200).list(); got != `[`+
		`{"key":"NODE_ID","defined":false,"builtIn":true,"files":[{"path":"server.properties","line":2}]},`+
		`{"key":"PORT","defined":false,"builtIn":true,"files":[{"path":"server.properties","line":1}]},`+
		`{"key":"motd","defined":false,"builtIn":false,"files":[{"path":"server.properties","line":2}]}]` {
		t.Error(got)
	}
	base := s.drop("default/base", map[string]string{"x": "y"})
	if got := s.do("GET", "/api/v1/templates/lobby/inheritance", nil).want(200).list(); got != `[{"name":"base","hash":"`+base.Digest+`","present":true,"exists":true},{"name":"lobby","hash":"`+h.Digest+`","present":true,"exists":true}]` {
		t.Error(got)
	}
	if got := s.do("GET", "/api/v1/templates/base/inheritance", nil).want(200).list(); !strings.HasPrefix(got, `[{"name":"base"`) || strings.Count(got, "hash") != 1 {
		t.Error(got)
	}
}

func TestTheOlderDialectShowsATemplatesFiles(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.drop("my/lobby", map[string]string{"server.properties": "port=1\n", "plugins/b.jar": "\x00\x01", "odd/a+b c%.txt": "ü", "files/files": "f"})
	s.do("GET", "/api/templates/my/lobby", nil).want(200).is("group", "my").is("name", "lobby").is("path", "templates/my/lobby")
	s.do("GET", "/api/templates/my/lobby/files", nil).want(200).is("group", "my").is("name", "lobby").
		is("files", []string{"files/files", "odd/a+b c%.txt", "plugins/b.jar", "server.properties"})
	for path, want := range map[string][2]string{
		"server.properties": {"port=1\n", "text/plain; charset=utf-8"}, "plugins/b.jar": {"\x00\x01", "application/octet-stream"},
		"odd/a+b%20c%25.txt": {"ü", "text/plain; charset=utf-8"}, "plugins%2Fb.jar": {"\x00\x01", "application/octet-stream"}, "files/files": {"f", "text/plain; charset=utf-8"},
	} {
		if r := s.do("GET", "/api/templates/my/lobby/files/"+path, nil).want(200); r.raw != want[0] || r.header.Get("Content-Type") != want[1] {
			t.Errorf("%s: %q, %v", path, r.raw, r.header)
		}
	}
	s.do("GET", "/api/templates/my/lobby/files/none", nil).want(404)
	s.do("GET", "/api/templates/my/none/files", nil).want(404).is("error", "Template not found")
	s.do("GET", "/api/templates/my/none/files/x", nil).want(404).is("error", "Template not found")
}

func TestNoPathLeadsOutOfATemplate(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.drop("my/lobby", map[string]string{"a": "inside"})
	if err := os.WriteFile(filepath.Join(s.dir, "secret"), []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range hostile {
		for _, url := range []string{
			"/api/templates/my/lobby/files/" + p, "/api/v1/templates/my%2Flobby/files?path=" + p, "/api/v1/templates/my%2Flobby/files/content?path=" + p,
			"/api/v1/templates/my%2Flobby/files/download?path=" + p,
		} {
			r := s.do("GET", url, nil)
			if r.status != 400 && r.status != 404 || strings.Contains(r.raw, "outside") {
				t.Errorf("%s: %d %s", url, r.status, r.raw)
			}
			r.enveloped()
		}
	}
	for _, name := range []string{"..%2f..", "..", "my%2F..", "%2e%2e%2f%2e%2e", "my%5clobby", "a%00b", "my%2Flobby%2F.."} {
		s.do("GET", "/api/v1/templates/"+name+"/files", nil).want(404)
		s.do("GET", "/api/templates/my/"+name+"/files/a", nil).want(404)
		s.do("GET", "/api/templates/"+name+"/lobby/files", nil).want(404)
	}
}

func TestAnOlderVersionsFilesAreShown(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	old := s.drop("default/lobby", map[string]string{"a": "one"})
	now := s.drop("default/lobby", map[string]string{"a": "two", "b": ""})
	content := func(version string) *reply {
		return s.do("GET", "/api/v1/templates/lobby/files/content?path=a&version="+version, nil)
	}
	content("").want(200).is("content", "two").is("version", now.Digest)
	content(old.Digest).want(200).is("content", "one").is("version", old.Digest)
	content(strings.ToUpper(old.Digest[:16])).want(200).is("content", "one")
	content(strings.Repeat("0", 64)).want(404)
	for _, bad := range []string{"x", old.Digest[:15], "../" + old.Digest, strings.Repeat("a", 129)} {
		content(bad).want(400).naming("version")
	}
	other := s.drop("default/other", map[string]string{"a": "other's"})
	content(other.Digest).want(404)
}

func TestHiddenTemplatesAndFiltersOfTheList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, ref := range []string{"lobby", "_hidden", "my/arena", "_shared/base"} {
		s.template(ref)
	}
	names := func(query string) (out []string) {
		for _, d := range s.do("GET", "/api/v1/templates"+query, nil).want(200).data() {
			m, _ := d.(map[string]any)
			name, _ := m["name"].(string)
			out = append(out, name)
		}
		return out
	}
	for query, want := range map[string][]string{
		"": {"lobby", "my/arena"}, "?all=true": {"_shared/base", "_hidden", "lobby", "my/arena"}, "?q=AREN": {"my/arena"}, "?platform=PAPER": nil,
	} {
		if got := names(query); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
	// Hidden templates are available by name, and to groups.
	s.do("GET", "/api/v1/templates/_shared%2Fbase", nil).want(200).is("group", "_shared")
	s.do("GET", "/api/templates/_shared/base", nil).want(200)
	s.do("POST", "/api/v1/groups", `{"name":"g","templates":["_shared/base"],"templateInstallationConfig":{"allInGroups":["_shared"]}}`).want(201)
	s.do("PATCH", "/api/v1/groups/g", `{"minInstances":0}`).want(200)
	s.do("PUT", "/api/v1/template-sources/s", `{"kind":"git","url":"https://host/r","group":"_shared"}`).want(201)
}

func TestWhatATemplateSaysOfItselfIsBoundedWhereverItIsSaid(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.drop("default/lobby", map[string]string{"a": "b"})
	for field, value := range map[string]string{"description": strings.Repeat("x", 100_000), "platform": `a\u0000b`} {
		body := `"` + field + `":"` + value + `"`
		for _, query := range []string{"", "?dryRun=true"} {
			s.do("POST", "/api/v1/templates"+query, `{"name":"x",`+body+`}`).want(422).naming(field + " must be at most")
			s.do("PATCH", "/api/v1/templates/lobby"+query, `{`+body+`}`).want(422).naming(field + " must be at most")
		}
	}
	s.do("GET", "/api/v1/templates/x", nil).want(404)
	s.do("GET", "/api/v1/templates/lobby", nil).want(200).is("description", "").is("platform", "")
	s.do("PATCH", "/api/v1/templates/lobby", `{"description":"`+strings.Repeat("ä", validate.MaxDescription)+`"}`).want(200)
}

// reaching has bodies with which template routes would have an effect.
var reaching = map[string]string{
	"PATCH /api/v1/templates/:name":                 `{"description":"x"}`,
	"POST /api/v1/templates/:name/rollback":         `{"hash":"%s"}`,
	"PUT /api/v1/templates/:name/files/content":     `{"content":"x"}`,
	"POST /api/v1/templates/:name/files/mkdir":      `{"path":"x"}`,
	"POST /api/v1/templates/:name/files/rename":     `{"from":"a","to":"b"}`,
	"PUT /api/v1/templates/:name/variables":         `[]`,
	"POST /api/templates/:group/:name/sync":         `{}`,
	"PATCH /api/templates/:group/:name/files/*path": `x`,
	"POST /api/templates/:group/:name/files/*path":  `x`,
}

func TestTemplatesOfUsersPicturesAreOutOfReachOfWhoMayDoEverythingToTemplates(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	data := client.New(client.Config{Secret: secret, Resolve: func() []string { return []string{s.view.Snapshot().ServiceSessions("templatesvc")[0].URL} }})
	if _, err := data.PutFile(t.Context(), client.Change{Ref: content.AvatarTemplate, Create: true, Path: "a", Asked: client.Asked{Author: "a"}}, 0, false, strings.NewReader("picture")); err != nil {
		t.Fatal(err)
	}
	var head *content.TemplateHead
	await.That(t, "the gateway knows of it", func() string {
		h, ok := s.view.Snapshot().TemplateHeads.Get(content.AvatarTemplate.String())
		head = h
		return await.Unless(ok, "not yet")
	})
	fill := strings.NewReplacer(":group", content.AvatarTemplate.Group, "*path", "a", ":hash", head.Digest)
	asked := 0
	for _, r := range s.routes() {
		name := ""
		switch {
		case strings.HasPrefix(r.Path, "/api/v1/templates/:name"):
			name = url.PathEscape(content.AvatarTemplate.String())
		case strings.HasPrefix(r.Path, "/api/templates/:group/:name"):
			name = content.AvatarTemplate.Name
		default:
			continue
		}
		asked++
		path := strings.Replace(fill.Replace(r.Path), ":name", name, 1) + "?path=a&q=a&from=" + head.Digest
		s.do(r.Method, path, strings.Replace(reaching[r.Method+" "+r.Path], "%s", head.Digest, 1)).want(404)
	}
	if asked < 30 {
		t.Fatalf("%d routes were asked", asked)
	}
	internal := content.AvatarTemplate.String()
	s.do("POST", "/api/v1/templates", `{"name":"_users/x"}`).want(422).naming("name")
	s.do("POST", "/api/v1/templates?dryRun=true", `{"name":"x","group":"_users"}`).want(422).naming("name")
	body, media := form(t, map[string]string{"name": "_users/x"}, "a.zip", zipped(t, member{name: "z.txt", content: "z"}))
	s.do("POST", "/api/v1/templates/import", body, media...).want(422).naming("name")
	s.do("POST", "/api/v1/groups", `{"name":"g","templates":["`+internal+`"]}`).want(422).naming("templates[0]")
	s.do("POST", "/api/v1/groups", `{"name":"g","templateInstallationConfig":{"allInGroups":["_users"]}}`).want(422).naming("allInGroups[0]")
	s.do("PUT", "/api/v1/template-sources/s", `{"kind":"git","url":"https://host/r","template":"`+internal+`"}`).want(422).naming("template")
	s.do("PUT", "/api/v1/template-sources/s", `{"kind":"git","url":"https://host/r","group":"_users"}`).want(422).naming("group")
	s.do("POST", "/api/v1/templates/sync", `{"pattern":"_users/*"}`).want(200).naming("no template matches")
	s.do("POST", "/api/templates/sync", `{"pattern":"`+internal+`"}`).want(200).naming("no template matches")
	for _, list := range []string{"/api/v1/templates?all=true&q=_users", "/api/templates"} {
		if r := s.do("GET", list, nil).want(200); strings.Contains(r.raw, internal) {
			t.Errorf("%s: %s", list, r.raw)
		}
	}
	if now, err := store.Get(t.Context(), s.store, keys.TemplateHead(content.AvatarTemplate)); err != nil || now.ModRev != head.ModRev {
		t.Errorf("it is %+v now: %v", now, err)
	}
}

func TestFilesCannotBeReadWhileNoTemplateServiceRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("lobby")
	for _, what := range []string{"files", "files/content?path=a", "files/download?path=a", "search?q=a", "variables/scan"} {
		s.do("GET", "/api/v1/templates/lobby/"+what, nil).want(503)
	}
	s.do("GET", "/api/templates/default/lobby/files", nil).want(503)
	s.do("GET", "/api/templates/default/lobby/files/a", nil).want(503)
	if _, err := store.Get(t.Context(), s.store, keys.TemplateHead(content.ParseTemplateRef("lobby"))); errs.Is(err, errs.NotFound) {
		t.Error("the template is gone")
	}
}

func TestUnknownTemplateSuggestsNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.published("games/lobby")
	s.do("GET", "/api/v1/templates/lobby", nil).want(404).naming("default/lobby").naming("games/lobby")
	s.do("GET", "/api/v1/templates/games%2FLobby", nil).want(404).naming("did you mean games/lobby?")
	s.do("GET", "/api/v1/templates/none/files", nil).want(404).naming("there is no template default/none")
	s.do("GET", "/api/v1/templates/"+strings.Repeat("x", 3000), nil).want(404)
}
