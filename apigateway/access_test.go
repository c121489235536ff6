package apigateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestTheConfiguredPasswordIsTheAdmins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.do("POST", "/api/v1/auth/login", map[string]string{"username": "Admin", "password": adminPassword}).want(200)
	r.is("user.role", "ADMIN").is("user.username", "admin")
	if list, _ := r.field("user.permissions").([]any); len(list) != 60 {
		t.Errorf("%d permissions", len(list))
	}
	if !strings.HasPrefix(r.raw, `{"token":"`) {
		t.Errorf("the token does not come first: %.40s", r.raw)
	}
	s.do("GET", "/api/v1/auth/me", nil).want(200).is("username", "admin").is("id", "admin")
}

func TestAGeneratedPasswordIsWrittenOnceAndKept(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	file := filepath.Join(t.TempDir(), "password")
	generated := func(c *Config) { c.AdminPassword, c.AdminPasswordFile = "", file }
	first := newSiteOn(t, etcd, generated)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	password, err := os.ReadFile(file)
	if err != nil || info.Mode().Perm() != 0o600 || len(strings.TrimSpace(string(password))) != 20 {
		t.Fatalf("%q, mode %v, %v", password, info.Mode(), err)
	}
	first.login("admin", strings.TrimSpace(string(password)))
	second := newSiteOn(t, etcd, generated)
	again, err := os.ReadFile(file)
	if err != nil || string(again) != string(password) {
		t.Errorf("the second start changed it: %v", err)
	}
	second.login("admin", strings.TrimSpace(string(password)))
}

func TestPasswordFileIsRemovedAfterPasswordChange(t *testing.T) {
	t.Parallel()
	etcd, dir := storetest.Start(t), t.TempDir()
	file := filepath.Join(dir, "password")
	first := newSiteOn(t, etcd, func(c *Config) { c.AdminPassword, c.AdminPasswordFile = "", file })
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	password := strings.TrimSpace(string(written))
	first = first.as(first.login("admin", password))
	first.do("POST", "/api/v1/users", map[string]string{"username": "bob", "password": adminPassword, "role": "VIEWER"}).want(201)
	bob := first.as(first.login("bob", adminPassword))
	bob.do("POST", "/api/v1/auth/change-password", map[string]string{"currentPassword": adminPassword, "newPassword": "another of bob"}).want(200)
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("another user's password was changed: %v", err)
	}

	// One path is a copy of the password file, as of a gateway that is down while the password changes.
	// The other is a file that no gateway wrote.
	down, foreign := filepath.Join(dir, "down"), filepath.Join(dir, "foreign")
	for path, content := range map[string]string{down: string(written), foreign: "my notes\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(path string) {
		t.Helper()
		await.That(t, path+" gone", func() string {
			_, err := os.Stat(path)
			return await.Unless(os.IsNotExist(err), "%v", err)
		})
	}
	second := newSiteOn(t, etcd, func(c *Config) { c.AdminPassword, c.AdminPasswordFile = "", foreign })
	second.as(second.login("admin", password)).
		do("POST", "/api/v1/auth/change-password", map[string]string{"currentPassword": password, "newPassword": "a new horse"}).want(200)
	gone(file)
	newSiteOn(t, etcd, func(c *Config) { c.AdminPassword, c.AdminPasswordFile = "", down })
	gone(down)
	if b, err := os.ReadFile(foreign); err != nil || string(b) != "my notes\n" {
		t.Errorf("a file that no gateway wrote: %q, %v", b, err)
	}
}

func TestConcurrentStartKeepsOnlyTheValidPasswordFile(t *testing.T) {
	for name, file := range map[string]func(int) string{
		"a shared file":   func(int) string { return "password" },
		"a file for each": func(n int) string { return fmt.Sprint("password-", n) },
	} {
		t.Run(name, func(t *testing.T) {
			etcd, dir := storetest.Start(t), t.TempDir()
			t.Run("start", func(t *testing.T) {
				for n := range 4 {
					t.Run("", func(t *testing.T) {
						t.Parallel()
						newSiteOn(t, etcd, func(c *Config) { c.AdminPassword, c.AdminPasswordFile = "", filepath.Join(dir, file(n)) })
					})
				}
			})
			files, err := os.ReadDir(dir)
			if err != nil || len(files) != 1 {
				t.Fatalf("%v, %v", files, err)
			}
			password, err := os.ReadFile(filepath.Join(dir, files[0].Name()))
			if err != nil {
				t.Fatal(err)
			}
			newSiteOn(t, etcd).login("admin", strings.TrimSpace(string(password)))
		})
	}
}

func TestGatewaysThatStartTogetherAgreeOnUserAndKey(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a, b := newSiteOn(t, etcd), newSiteOn(t, etcd)
	token := a.login("admin", adminPassword)
	b.as(token).do("GET", "/api/v1/auth/me", nil).want(200)
}

func TestWrongClusterSecretIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g, err := New(Config{
		Store: s.store, View: newUnstartedView(s), Log: s.gateway.cfg.Log, Listen: "127.0.0.1:0", Replica: "other",
		ClusterSecret: strings.Repeat("x", 32), AdminPassword: "y",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := runWithView(t, g); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "cluster.secret" {
		t.Errorf("err = %v", err)
	}
}

func TestFailedLoginRevealsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t).as("")
	wrong := s.do("POST", "/api/v1/auth/login", map[string]string{"username": "admin", "password": "wrong"}).want(401)
	unknown := s.do("POST", "/api/v1/auth/login", map[string]string{"username": "nobody", "password": "wrong"}).want(401)
	if wrong.raw != unknown.raw {
		t.Errorf("%s and %s differ", wrong.raw, unknown.raw)
	}
	for name, body := range map[string]string{
		"no password": `{"username":"admin"}`, "no user": `{"password":"x"}`, "unknown field": `{"username":"a","password":"b","x":1}`,
		"not JSON": `{`, "a list": `[]`, "wrong type": `{"username":1,"password":"b"}`, "null": `null`, "empty": ``,
	} {
		if r := s.do("POST", "/api/v1/auth/login", body); r.status != 400 && r.status != 422 {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
	}
}

func TestOnlyPublicRoutesAnswerWithoutAToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	anonymous := s.as("")
	public := 0
	for _, r := range s.routes() {
		path := strings.NewReplacer(":group", "x", ":name", "x", ":id", "x", "*path", "x", ":hash", "x").Replace(r.Path)
		if r.Demand.Open() {
			public++
			signed := strings.HasSuffix(path, "/webhook") || path == "/api/v1/auth/refresh" // authenticated by a signature or a refresh token
			if got := anonymous.do(r.Method, path, nil); got.status == 401 && !signed {
				t.Errorf("%s %s demands a token", r.Method, path)
			}
			continue
		}
		anonymous.do(r.Method, path, nil).want(401)
		anonymous.do(r.Method, path, nil, "Authorization", "Bearer nonsense").want(401)
		anonymous.do(r.Method, path, nil, "Authorization", "Basic YTpi").want(401)
	}
	if public != 31 {
		t.Errorf("%d public routes", public)
	}
}

func TestBuiltInRolesHaveTheirPermissions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	viewer, operator := s.user("vera", "VIEWER"), s.user("otto", "OPERATOR")
	reads := []string{"/api/v1/groups", "/api/v1/services", "/api/v1/nodes", "/api/v1/quotas", "/api/v1/templates", "/api/v1/template-sources", "/api/v1/overview", "/api/v1/crashes", "/api/v1/crashes/trends", "/api/configurations", "/api/instances", "/api/cluster/nodes", "/api/templates"}
	for _, path := range reads {
		viewer.do("GET", path, nil).want(200)
	}
	mutations := []struct{ method, path, body string }{
		{"POST", "/api/v1/groups", `{"name":"other"}`},
		{"PUT", "/api/v1/groups/lobby", `{}`},
		{"PATCH", "/api/v1/groups/lobby", `{"minInstances":1}`},
		{"DELETE", "/api/v1/groups/lobby", ``},
		{"POST", "/api/v1/groups/lobby/start", ``},
		{"POST", "/api/v1/groups/lobby/scale", `{"targetInstances":1}`},
		{"POST", "/api/v1/groups/lobby/crash-loop/reset", ``},
		{"POST", "/api/v1/nodes/node-1/cordon", ``},
		{"POST", "/api/v1/nodes/node-1/drain", ``},
		{"POST", "/api/v1/nodes/node-1/undrain", ``},
		{"POST", "/api/v1/instances/lobby-1/move", ``},
		{"DELETE", "/api/v1/instances/lobby-1/move", ``},
		{"PATCH", "/api/v1/nodes/node-1", `{"labels":{"a":"b"}}`},
		{"DELETE", "/api/v1/nodes/node-1", ``},
		{"PUT", "/api/v1/quotas/acme", `{"selector":{"tenant":"acme"},"limit":{"instances":1}}`},
		{"DELETE", "/api/v1/quotas/acme", ``},
		{"PUT", "/api/v1/template-sources/s", `{"kind":"git","url":"https://host/r"}`},
		{"DELETE", "/api/v1/template-sources/s", ``},
		{"POST", "/api/v1/template-sources/s/sync", ``},
		{"POST", "/api/v1/api-tokens", `{"name":"x"}`},
		{"PUT", "/api/configurations/lobby", `{}`},
		{"DELETE", "/api/configurations/lobby", ``},
		{"POST", "/api/instances", `{"configurationName":"lobby"}`},
	}
	before := s.revision()
	for _, m := range mutations {
		viewer.do(m.method, m.path, m.body).want(403)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	viewer.do("GET", "/api/v1/audit", nil).want(403)
	operator.do("PATCH", "/api/v1/groups/lobby", `{"maxPlayers":5}`).want(200)
	operator.do("DELETE", "/api/v1/groups/lobby", nil).want(403)
	operator.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"a":"b"}}`).want(200)
	operator.do("PUT", "/api/v1/quotas/acme", `{"selector":{"tenant":"acme"},"limit":{"instances":1}}`).want(403)
	operator.do("POST", "/api/v1/api-tokens", `{"name":"x"}`).want(403)
	operator.do("PUT", "/api/v1/template-sources/s", `{"kind":"git","url":"https://host/r"}`).want(403)
}

func TestATokenIsJudgedByThePresentUser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	vera := s.user("vera", "VIEWER")
	vera.do("POST", "/api/v1/groups", `{"name":"a"}`).want(403)
	change := func(f func(*account.User)) {
		u, err := store.Get(t.Context(), s.store, keys.User("vera"))
		if err != nil {
			t.Fatal(err)
		}
		rev := u.ModRev
		f(&u)
		s.commit(store.Replace(keys.User("vera"), u, rev))
	}
	change(func(u *account.User) { u.Role = "OPERATOR" })
	vera.do("POST", "/api/v1/groups", `{"name":"a"}`).want(201)
	fresh := vera.as(vera.do("POST", "/api/v1/auth/refresh", nil).want(200).field("token").(string))
	fresh.do("GET", "/api/v1/auth/me", nil).want(200).is("role", "OPERATOR")
	change(func(u *account.User) { u.Epoch++ })
	vera.do("GET", "/api/v1/groups", nil).want(401)
	vera = vera.as(vera.as("").login("vera", adminPassword))
	u, err := store.Get(t.Context(), s.store, keys.User("vera"))
	if err != nil {
		t.Fatal(err)
	}
	s.commit(store.Remove(keys.User("vera"), u.ModRev))
	vera.do("GET", "/api/v1/groups", nil).want(401)
}

func TestAnAPITokenIsShownOnceAndWorksUntilDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.do("POST", "/api/v1/api-tokens", map[string]any{"name": "ci", "expiresInSeconds": 3600}).want(201)
	token, _ := r.field("token").(string)
	id, _ := r.field("id").(string)
	if !strings.HasPrefix(token, "ort_") || len(token) != 4+43 || r.field("expiresAt") == nil {
		t.Fatalf("made %s", r.raw)
	}
	list := s.do("GET", "/api/v1/api-tokens", nil).want(200)
	if list.is("total", 1); strings.Contains(list.raw, token[4:]) {
		t.Error("the list shows the token")
	}
	record, err := store.Get(t.Context(), s.store, keys.APIToken(id))
	if err != nil || strings.Contains(record.Hash, token[4:]) {
		t.Errorf("the store holds %+v, %v", record, err)
	}
	bot := s.as(token)
	bot.do("POST", "/api/v1/groups", `{"name":"made-by-bot"}`).want(201)
	bot.do("GET", "/api/configurations", nil).want(200)
	bot.do("POST", "/api/v1/auth/refresh", nil).want(403)
	s.do("DELETE", "/api/v1/api-tokens/"+id, nil).want(204)
	s.do("DELETE", "/api/v1/api-tokens/"+id, nil).want(404)
	bot.do("GET", "/api/v1/groups", nil).want(401)
	s.do("POST", "/api/v1/api-tokens", `{"name":""}`).want(422).naming("name")
	s.do("POST", "/api/v1/api-tokens", `{"name":"x","expiresInSeconds":-1}`).want(422).naming("expiresInSeconds")
	s.do("POST", "/api/v1/api-tokens", `{"name":"x","expiresInSeconds":9000000000000000000}`).want(422).naming("expiresInSeconds")
}

func TestLoginLimitRefusesBeforeChecking(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, storetest.Start(t), func(c *Config) { c.Limits = Limits{} })
	for n := range 10 { // different names, so that none is locked out
		s.do("POST", "/api/v1/auth/login", map[string]string{"username": fmt.Sprintf("user%d", n), "password": "wrong"}).want(401)
	}
	r := s.do("POST", "/api/v1/auth/login", map[string]string{"username": "admin", "password": adminPassword}).want(429)
	r.is("error.code", "RATE_LIMITED")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestAnonymousRequestsAreLimited(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, storetest.Start(t), func(c *Config) { c.Limits = Limits{} })
	token := s.login("admin", adminPassword)
	for range 100 {
		s.do("GET", "/api/v1/groups", nil).want(401)
	}
	if r := s.do("GET", "/api/v1/groups", nil).want(429); r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.do("GET", "/api/instances", nil).want(429)
	s.do("GET", "/livez", nil).want(200)
	s.do("GET", "/ui/app.js", nil).want(200) // a page of the dashboard has dozens of files
	s.as(token).do("GET", "/api/v1/groups", nil).want(200)
	before := s.revision()
	s.as("bad").do("POST", "/api/v1/groups", `{"name":"a"}`).want(429)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a limited request wrote something: %v", keys)
	}
}

func TestUnknownRouteIs404InItsDialect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	for _, path := range []string{
		"/nope", "/api/v1", "/api/v1/nope", "/api/v1/groups/", "/api/v1//groups", "/API/v1/groups", "/api/v1/groups/lobby/nope",
		"/api/v1/groups/../groups", "/api/v1/%2e%2e/groups", "/api/v1/groups/%2e%2e%2fgroups", "/api/v1/groups/lobby%2f",
		"/api/nope", "/api/", "/api/instances/", "/api/v2/groups",
	} {
		s.do("GET", path, nil).want(404)
		s.as("").do("GET", path+"?x=1", nil)
	}
	for _, path := range []string{"/api/v1/templates/games/web", "/api/v1/templates/games/web/files"} {
		s.do("GET", path, nil).want(404).naming("encode the slash in its name, games%2Fweb")
	}
	s.do("PATCH", "/api/v1/groups", `{}`).want(405).is("error.code", "METHOD_NOT_ALLOWED")
	s.do("PUT", "/api/instances", `{}`).want(405)
	s.as("").do("DELETE", "/api/v1/groups", nil).want(405)
}

func TestEveryAnswerCarriesItsIDs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.do("GET", "/api/v1/groups", nil, "X-Correlation-Id", "build-7.3"), s.do("GET", "/api/v1/groups", nil)
	if a.header.Get("X-Correlation-Id") != "build-7.3" || a.header.Get("X-Request-Id") == b.header.Get("X-Request-Id") || b.header.Get("X-Correlation-Id") == "" {
		t.Errorf("%v and %v", a.header, b.header)
	}
	odd := s.do("GET", "/nope", nil, "X-Correlation-Id", "a b\t<script>"+strings.Repeat("x", 500))
	if got := odd.header.Get("X-Correlation-Id"); strings.ContainsAny(got, " <>\t") || len(got) != 128 {
		t.Errorf("echoed %q", got)
	}
}

func TestBrowsersOfAllowedOriginsMayCall(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	any := newSiteOn(t, etcd, func(c *Config) { c.Origins = []string{"*"} })
	r := any.do("OPTIONS", "/api/v1/groups/lobby", nil, "Origin", "https://a.example", "Access-Control-Request-Method", "PATCH").want(204)
	if r.header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(r.header.Get("Access-Control-Allow-Methods"), "PATCH") ||
		r.header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%v", r.header)
	}
	some := newSiteOn(t, etcd, func(c *Config) { c.Origins = []string{"https://a.example"} })
	if got := some.do("GET", "/livez", nil, "Origin", "https://a.example").header.Get("Access-Control-Allow-Origin"); got != "https://a.example" {
		t.Errorf("allowed %q", got)
	}
	if got := some.do("GET", "/livez", nil, "Origin", "https://b.example").header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("allowed %q", got)
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		r := some.do("OPTIONS", "/api/v1/groups/lobby", nil, "Origin", "https://a.example", "Access-Control-Request-Method", method).want(204)
		if !strings.Contains(r.header.Get("Access-Control-Allow-Methods"), method) {
			t.Errorf("the preflight of %s from a listed origin: %v", method, r.header)
		}
	}
}

func TestByDefaultOnlyPagesOfTheGatewaysOwnOriginCall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	host := strings.TrimPrefix(s.url, "http://")
	login := `{"username":"admin","password":"wrong"}`
	post := func(header ...string) *reply {
		t.Helper()
		r := s.as("").do("POST", "/api/v1/auth/login", login, header...)
		if got := r.header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%v: allowed %q", header, got)
		}
		return r
	}
	before := s.revision()
	for name, header := range map[string][]string{
		"another site":                    {"Origin", "https://evil.example"},
		"a page of a form":                {"Origin", "https://evil.example", "Content-Type", "application/x-www-form-urlencoded"},
		"another port of this host":       {"Origin", "http://" + host + "0"},
		"a page without an origin":        {"Origin", "null"},
		"what the browser calls foreign":  {"Origin", s.url, "Sec-Fetch-Site", "cross-site"},
		"another page of the same domain": {"Origin", s.url, "Sec-Fetch-Site", "same-site"},
	} {
		t.Run(name, func(t *testing.T) { post(header...).want(403).naming("http.cors.allowedOrigins") })
	}
	r := s.do("OPTIONS", "/api/v1/groups/lobby", nil, "Origin", "https://evil.example", "Access-Control-Request-Method", "DELETE")
	if r.status/100 == 2 || r.header.Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("the preflight of a page of another origin: %d %v", r.status, r.header)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a page of another origin changed something: %v", keys)
	}
	if opens(s, "https://evil.example") || !opens(s, s.url) {
		t.Error("a WebSocket opens for a page of another origin, or does not for one of the own origin")
	}
	post("Origin", s.url).want(401)
	post("Origin", strings.ToUpper(s.url), "Sec-Fetch-Site", "same-origin").want(401)
	post("Origin", "https://panel.example", "Sec-Fetch-Site", "same-origin").want(401) // behind a proxy that sets Host
	post().want(401)
}

func TestABodyThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	big := `{"name":"` + strings.Repeat("x", 1<<20) + `"}`
	s.do("POST", "/api/v1/groups", big).want(413)
	s.do("PATCH", "/api/v1/groups/lobby", big).want(413)
	s.do("PUT", "/api/configurations/lobby", big).want(413)
	s.do("POST", "/api/v1/groups", `{"name":"`+strings.Repeat("x", 10_000)+`"}`).want(422)
}

func TestHealthAndReadiness(t *testing.T) {
	t.Parallel()
	s := newSite(t).as("")
	for _, path := range []string{"/livez", "/health", "/api/v1/system/health", "/readyz", "/ready", "/api/v1/system/ready"} {
		s.do("GET", path, nil).want(200)
	}
	s.do("GET", "/api/v1/system/health", nil).is("status", "UP").is("readiness.status", "READY")
	s.do("GET", "/api/v1/system/version", nil).want(200)
	s.do("GET", "/api/ping", nil).want(200).is("status", "ok")
	s.etcd.Stop()
	s.do("GET", "/health", nil).want(200).is("readiness.status", "NOT_READY")
	s.do("GET", "/readyz", nil).want(503).is("checks.store", "DOWN")
	s.do("GET", "/livez", nil).want(200)
	s.etcd.Restart(t)
}

func TestTheGatewayAnnouncesItself(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	await.That(t, "a session", func() string {
		if list := s.view.Snapshot().ServiceSessions("apigateway"); len(list) == 1 && list[0].URL == s.url {
			return ""
		}
		return "none"
	})
}

func TestUserAndNameLimitsAreSharedByGateways(t *testing.T) {
	t.Parallel()
	edit := func(c *Config) { c.Limits.Users, c.Limits.Names, c.Lockout.Failures = 20, 6, -1 }
	a := newSite(t, edit)
	b := newSiteOn(t, a.etcd, edit).as(a.token)
	for _, s := range []*site{a, b} {
		await.That(t, "both gateways are known", func() string {
			n := len(s.view.Snapshot().ServiceSessions("apigateway"))
			return await.Unless(n == 2, "%d are", n)
		})
	}
	for _, s := range []*site{a, b} {
		for range 10 {
			s.do("GET", "/api/v1/auth/me", nil).want(200)
		}
		r := s.do("GET", "/api/v1/auth/me", nil).want(429).is("error.code", "RATE_LIMITED")
		if r.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		for range 3 {
			tries(s.as(""), "ann", "wrong").want(401)
		}
	}
	tries(b.as(""), "ANN", "wrong").want(429).is("error.code", "RATE_LIMITED")
	tries(b.as(""), "bob", "wrong").want(401)
}
