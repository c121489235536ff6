package apigateway

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/openapitest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
)

// besieged is a gateway with one object of every kind, for hostile requests.
type besieged struct {
	*shelf
	contract *openapitest.Contract
	client   *http.Client
	// own is the token of an instance, said how often it was used.
	own  string
	said *atomic.Int64
	// expired are expired tokens.
	expired []string
	// there has the values of path parameters, by the path up to the parameter.
	there map[string]string
}

func besiege(t testing.TB) *besieged {
	t.Helper()
	var ahead atomic.Int64
	c, err := contractOf()
	if err != nil {
		t.Fatal(err)
	}
	b := &besieged{contract: c, said: new(atomic.Int64), client: &http.Client{Transport: &http.Transport{ExpectContinueTimeout: await.Patience}}, shelf: newShelf(newSite(t, func(c *Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}))}
	t.Cleanup(b.client.CloseIdleConnections)
	ahead.Store(int64(-auth.SessionTTL - time.Hour))
	login := b.login("admin", adminPassword)
	made, _ := b.as(login).do("POST", "/api/v1/api-tokens", `{"name":"old","expiresInSeconds":3600}`).want(201).field("token").(string)
	for _, token := range []string{login, made} {
		b.as(token).do("GET", "/api/v1/auth/me", nil).want(200)
	}
	ahead.Store(0)
	b.expired = []string{login, made}
	b.furnish()
	return b
}

// on returns b for another test, such as a subtest.
func (b *besieged) on(t testing.TB) *besieged {
	site, other := *b.site, *b
	site.t = t
	other.shelf = &shelf{site: &site, dir: b.dir}
	return &other
}

// furnish creates one object of every kind and gives the caller all permissions.
func (b *besieged) furnish() {
	b.t.Helper()
	b.group("lobby", map[string]any{"platform": "VELOCITY"}) // a proxy may do everything that an instance may
	b.node("node-1", fleet.Resources{MemoryMiB: 4096})
	within := b.inside("lobby", "node-1")
	id := string(within.id)
	for _, made := range [][2]string{
		{"POST /api/v1/templates", `{"name":"lobby"}`},
		{"PUT /api/v1/templates/lobby/files/content?path=a", `{"content":"1"}`},
		{"POST /api/v1/users", `{"username":"vera","password":"correct horse","role":"VIEWER"}`},
		{"POST /api/v1/roles", `{"name":"GUARD","permissions":[]}`},
		{"PUT /api/v1/quotas/acme", creates["PUT /api/v1/quotas/:name"]},
		{"POST /api/v1/service-accounts", `{"name":"ci"}`},
		{"PUT /api/v1/bindings/mods", creates["PUT /api/v1/bindings/:name"]},
		{"PUT /api/v1/applied/role/GUARD", creates["PUT /api/v1/applied/:kind/:name"]},
		{"PUT /api/v1/schedules/nightly", creates["PUT /api/v1/schedules/:name"]},
		{"PUT /api/v1/overlays/evening", creates["PUT /api/v1/overlays/:name"]},
		{"PUT /api/v1/notices/ops", creates["PUT /api/v1/notices/:name"]},
		{"PUT /api/v1/secrets/key", creates["PUT /api/v1/secrets/:name"]},
		{"PUT /api/v1/template-sources/repo", creates["PUT /api/v1/template-sources/:name"]},
		{"POST /api/v1/networks", `{"name":"net","lobbyGroup":"lobby"}`},
		{"POST /api/v1/groups/lobby/deploy", `{}`},
		{"POST /api/v1/catalog/paper/versions", creates["POST /api/v1/catalog/:platform/versions"]},
	} {
		method, path, _ := strings.Cut(made[0], " ")
		if r := b.do(method, path, made[1]); r.status/100 != 2 {
			b.t.Fatalf("%s: %d %s", made[0], r.status, r.raw)
		}
	}
	admin, _ := auth.RoleOf(b.view.Snapshot(), auth.RoleAdmin)
	b.commit(store.Create(keys.Role("ALL"), account.Role{Name: "ALL", Permissions: append([]account.Permission{auth.ClusterManage}, admin.Permissions...)}))
	b.own, b.token = within.token, b.user("all", "ALL").token
	hash, _ := b.do("GET", "/api/v1/templates/lobby", nil).want(200).field("hash").(string)
	b.there = map[string]string{
		"/api/v1/groups/:name": "lobby", "/api/configurations/:name": "lobby", "/api/v1/history/group/:name": "lobby",
		"/api/v1/groups/:name/deployments/:rev": "1",
		"/api/v1/services/:id":                  id, "/api/v1/instances/:id": id, "/api/instances/:id": id, "/api/v1/history/instance/:name": id,
		"/api/v1/nodes/:id": "node-1", "/api/cluster/nodes/:id": "node-1", "/api/v1/history/node/:name": "node-1",
		"/api/v1/templates/:name": "lobby", "/api/v1/templates/:name/versions/:hash": hash,
		"/api/templates/:group": "default", "/api/templates/:group/:name": "lobby", "/api/templates/:group/:name/files/*path": "a",
		"/api/v1/users/:name": "vera", "/api/v1/history/user/:name": "vera", "/api/v1/roles/:name": "GUARD", "/api/v1/history/role/:name": "GUARD",
		"/api/v1/schedules/:name": "nightly", "/api/v1/history/schedule/:name": "nightly", "/api/v1/overlays/:name": "evening", "/api/v1/history/overlay/:name": "evening",
		"/api/v1/notices/:name": "ops", "/api/v1/history/notice/:name": "ops",
		"/api/v1/applied/:kind": "role", "/api/v1/applied/:kind/:name": "GUARD",
		"/api/v1/service-accounts/:name": "ci", "/api/v1/bindings/:name": "mods", "/api/v1/history/binding/:name": "mods",
		"/api/v1/quotas/:name": "acme", "/api/v1/history/quota/:name": "acme", "/api/v1/secrets/:name": "key", "/api/v1/history/secret/:name": "key",
		"/api/v1/template-sources/:name": "repo", "/api/v1/history/template-source/:name": "repo", "/api/v1/networks/:name": "net",
		"/api/v1/catalog/:platform": "paper", "/api/v1/catalog/:platform/versions/:version": "1.21", "/api/v1/history/catalog/:name": "paper",
	}
}

// creates has bodies that create an object, by route. Unless the path has its name, the body names it
// "one"; a service account "robot", because users share its names.
var creates = map[string]string{
	"POST /api/v1/groups":                     `{"name":"one"}`,
	"PUT /api/v1/groups/:name":                `{}`,
	"POST /api/v1/admin/tokens":               `{"nodeId":"one"}`,
	"POST /api/v1/users":                      `{"username":"one","password":"correct horse","role":"VIEWER"}`,
	"POST /api/v1/roles":                      `{"name":"ONE","permissions":[]}`,
	"POST /api/v1/cluster/config":             `{"parentVersion":0,"patch":{"security.rateLimiting.perUserPerMinute":100000}}`,
	"POST /api/v1/networks":                   `{"name":"one","lobbyGroup":"lobby"}`,
	"POST /api/v1/templates":                  `{"name":"one"}`,
	"POST /api/v1/catalog/:platform/versions": `{"version":"1.21","downloadUrl":"https://host/paper.jar","sha256":"` + strings.Repeat("0", 64) + `"}`,
	"PUT /api/v1/quotas/:name":                `{"selector":{"tenant":"acme"},"limit":{"instances":1}}`,
	"POST /api/v1/service-accounts":           `{"name":"robot"}`,
	"PUT /api/v1/bindings/:name":              `{"role":"OPERATOR","selector":"game=bedwars","subjects":["admin"]}`,
	"PUT /api/v1/applied/:kind/:name":         `{"document":{"permissions":[]}}`,
	"PUT /api/v1/schedules/:name":             `{"group":"lobby","action":"stop","cron":"0 0 29 2 *"}`,
	"PUT /api/v1/overlays/:name":              `{"groups":["lobby"],"from":"2099-01-01T00:00:00Z","until":"2099-01-02T00:00:00Z","overlay":{"maintenance":true}}`,
	"POST /api/v1/notices":                    `{"name":"one","url":"http://localhost:1/x","events":["*"],"enabled":false}`,
	"PUT /api/v1/notices/:name":               `{"url":"http://localhost:1/x","events":["GROUP_*"],"enabled":false}`,
	"PUT /api/v1/secrets/:name":               `{"value":"x"}`,
	"PUT /api/v1/template-sources/:name":      `{"kind":"git","url":"https://host/r"}`,
}

// nameless are routes that create an object with a generated name.
var nameless = map[string]bool{
	"POST /api/v1/api-tokens": true, "POST /api/instances": true, "POST /api/plugin/message/send": true, "POST /api/v1/players/:uuid/message": true,
	"POST /api/v1/allocations": true, "POST /api/v1/crashes/:id/share": true, "POST /api/v1/system/logs/share": true, "POST /api/v1/nodes/:id/logs/share": true,
	"POST /api/v1/services/:id/console/share": true, "POST /api/v1/instances/:id/console/share": true, "POST /api/v1/system/diagnostics/share": true,
}

// path fills a route's parameters with existing values. The parameter with index at, from 0, becomes
// instead.
func (b *besieged) path(r server.Route, at int, instead string) string {
	var upTo, out []string
	n := 0
	for _, part := range strings.Split(r.Path, "/") {
		upTo = append(upTo, part)
		if part != "" && strings.ContainsRune(":*", rune(part[0])) {
			value, ok := b.there[strings.Join(upTo, "/")]
			if !ok {
				value = "nobody"
			}
			if n == at {
				value = instead
			}
			part = value
			n++
		}
		out = append(out, part)
	}
	return strings.Join(out, "/")
}

// target returns the URL of a route with a query.
func (b *besieged) target(r server.Route, query string) string {
	path := b.path(r, -1, "")
	if r.Method+" "+r.Path == "POST /api/v1/system/shutdown" && !strings.Contains(query, "dryRun") {
		query += "&dryRun=true" // the other requests need the same gateway
	}
	return path + "?" + query
}

// body returns a valid body for the route if the tests have one.
func (b *besieged) body(r server.Route) string {
	if body, ok := creates[r.Method+" "+r.Path]; ok {
		return body
	}
	if r.Method == http.MethodGet {
		return ""
	}
	return "{}"
}

// send sends a request with the token that the route needs, unless a header has another. It does not
// read streams. Errors must match the document.
func (b *besieged) send(r server.Route, target string, body io.Reader, header ...string) *reply {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), r.Method, b.url+target, body)
	if err != nil {
		b.t.Fatalf("%s %s: %v", r.Method, target, err)
	}
	token := b.token
	if r.Demand.Self() && len(r.Demand.Permissions()) == 0 {
		token = b.own
		req.Header.Set("X-Prexor-Sequence", fmt.Sprint(b.said.Add(1)))
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if length := req.Header.Get("Content-Length"); length != "" {
		_, _ = fmt.Sscan(length, &req.ContentLength)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatalf("%s %s: %v", r.Method, target, err)
	}
	defer resp.Body.Close()
	out := &reply{t: b.t, what: r.Method + " " + target, status: resp.StatusCode, header: resp.Header}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return out
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("%s: %v", out.what, err)
	}
	out.read(raw)
	if out.status >= http.StatusBadRequest {
		out.enveloped()
		if op := operationOf(b.contract, r); op != nil {
			if fault := b.contract.Answered(op, out.answer()); fault != "" {
				b.t.Errorf("%s: %s", out.what, fault)
			}
		}
	}
	return out
}

// oneOf checks that the status is one of some.
func (r *reply) oneOf(statuses ...int) {
	r.t.Helper()
	if !slices.Contains(statuses, r.status) {
		r.t.Errorf("%s: %d, want one of %v: %.300s", r.what, r.status, statuses, r.raw)
	}
}

// jsonBody returns the documented schema of a route's JSON body; nil if it has none.
func (b *besieged) jsonBody(r server.Route) object {
	return b.contract.JSONBody(operationOf(b.contract, r))
}

// strict reports whether the schema allows no unknown fields.
func (b *besieged) strict(schema object) bool {
	s := b.contract.Resolved(schema)
	_, open := s["additionalProperties"]
	return s["properties"] != nil && !open
}

// lenient reports whether a route ignores unknown fields.
func lenient(r server.Route) bool {
	return server.DialectOf(r.Path) == wire.Universe || strings.HasPrefix(r.Path, "/api/plugin/") || strings.HasPrefix(r.Path, "/api/proxy/")
}

// queried returns the documented query parameters of a route.
func (b *besieged) queried(r server.Route) (names []string, dry bool) {
	op := operationOf(b.contract, r)
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		switch p := b.contract.Resolved(p); {
		case p["in"] != "query":
		case p["name"] == "dryRun":
			dry = true
		default:
			names = append(names, fmt.Sprint(p["name"]))
		}
	}
	return names, dry
}

// outside are values that lead out of a directory, are invalid names, or are too long.
var outside = []string{
	"..%2f..%2fetc%2fpasswd", "%2e%2e", "..%5c..%5cx", "a%00b", "%ff%fe", "a%0d%0ab", strings.Repeat("x", 300),
}

// unread are bodies that are not a JSON object; [] is valid for routes with a list.
var unread = []string{
	`{`, `[]`, `null`, `"x"`, `{"a":1}{"b":2}`, "{\"a\":\"\xff\"}", `{"a":1,"a":2}`, strings.Repeat(`{"a":`, 10_000), `<html>`, "\x00",
}

func TestNoRouteIsMovedByAHostileRequest(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	for _, attack := range []struct {
		rule string
		send func(*besieged, server.Route)
	}{
		{"a token that has expired is as none", (*besieged).sendExpired},
		{"a method that a path does not take is refused", (*besieged).sendOtherMethods},
		{"a body that is too large is refused", (*besieged).sendTooMuch},
		{"a body of a type that is not read is refused", (*besieged).sendOtherType},
		{"what is no JSON object is refused", (*besieged).sendNoJSON},
		{"a field that nobody knows is refused where nothing else was promised", (*besieged).sendUnknownField},
		{"no parameter of a path leads out", (*besieged).sendPaths},
		{"no parameter of a query does", (*besieged).sendQueries},
	} {
		t.Run(attack.rule, func(t *testing.T) {
			on := b.on(t)
			for _, r := range b.routes() {
				before := on.revision()
				attack.send(on, r)
				if keys := on.moved(before); len(keys) > 0 {
					t.Errorf("%s %s wrote %v", r.Method, r.Path, keys)
				}
			}
		})
	}
}

func (b *besieged) sendExpired(r server.Route) {
	for _, token := range b.expired {
		if !r.Demand.Open() {
			b.send(r, b.target(r, ""), strings.NewReader(b.body(r)), "Authorization", "Bearer "+token).oneOf(401)
		}
	}
}

func (b *besieged) sendOtherMethods(r server.Route) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} {
		other := r
		other.Method = method
		if _, leads := b.routeOf(method, b.path(r, -1, "")); !leads {
			got := b.send(other, b.path(r, -1, ""), nil)
			if got.oneOf(405); !strings.Contains(got.header.Get("Allow"), r.Method) {
				b.t.Errorf("%s: allowed is %q", got.what, got.header.Get("Allow"))
			}
		}
	}
}

func (b *besieged) sendTooMuch(r server.Route) {
	// A client that sends Expect, like curl, gets the response without sending the body.
	endless := io.LimitReader(spaces{}, r.Body.Limit+1)
	b.send(r, b.target(r, ""), endless, "Content-Length", fmt.Sprint(r.Body.Limit+1), "Expect", "100-continue").oneOf(413)
	if b.jsonBody(r) != nil && !r.Body.Raw {
		b.send(r, b.target(r, ""), io.LimitReader(spaces{}, r.Body.Limit+1)).oneOf(413)
	}
}

// spaces is an endless reader of spaces.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func (b *besieged) sendOtherType(r server.Route) {
	for _, media := range []string{"text/plain", "application/xml; charset=utf-8", "json;;"} {
		if !r.Body.Raw {
			b.send(r, b.target(r, ""), strings.NewReader("hello"), "Content-Type", media).oneOf(415)
		}
	}
}

func (b *besieged) sendNoJSON(r server.Route) {
	schema := b.jsonBody(r)
	if schema == nil || r.Body.Raw {
		return
	}
	for _, body := range unread {
		if body == "[]" && schema["type"] == "array" {
			body = "{}"
		}
		b.send(r, b.target(r, ""), strings.NewReader(body)).oneOf(400)
	}
}

func (b *besieged) sendUnknownField(r server.Route) {
	schema := b.jsonBody(r)
	if lenient(r) || r.Body.Raw || schema == nil || !b.strict(schema) {
		return
	}
	got := b.send(r, b.target(r, ""), strings.NewReader(`{"unheardOf":1}`))
	if got.oneOf(400); !strings.Contains(got.raw, "unheardOf") {
		b.t.Errorf("%s does not name the field: %s", got.what, got.raw)
	}
}

func (b *besieged) sendPaths(r server.Route) {
	for at := range strings.Count(r.Path, "/:") + strings.Count(r.Path, "/*") {
		for _, value := range outside {
			path := b.path(r, at, value)
			if leads, _ := b.routeOf(r.Method, path); leads.Path != r.Path {
				continue
			}
			got := b.send(r, path, strings.NewReader(b.body(r)))
			if strings.HasSuffix(r.Path, "/webhook") { // it does not reveal which sources exist
				got.want(401)
				continue
			}
			got.oneOf(400, 404, 422, 426, 501)
		}
	}
}

func (b *besieged) sendQueries(r server.Route) {
	for _, query := range []string{"x=%ff", "%ff=x", "dryRun=perhaps", "minRevision=x", "a=b;c=d", "a=%zz"} {
		b.send(r, b.target(r, query), strings.NewReader(b.body(r))).oneOf(400)
	}
	names, dry := b.queried(r)
	for _, name := range names {
		for _, value := range append([]string{"-1", "99999999999999999999", "NaN", ""}, outside...) {
			query := name + "=" + value
			if dry {
				query += "&dryRun=true"
			}
			got := b.send(r, b.target(r, query), strings.NewReader(b.body(r)))
			if got.status >= 500 {
				b.t.Errorf("%s: %d %s", got.what, got.status, got.raw)
			}
		}
	}
}

func TestAFieldThatNobodyKnowsIsNamedInAWarningAndDoesNotMatter(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	for _, r := range b.routes() {
		if !lenient(r) || b.jsonBody(r) == nil {
			continue
		}
		got := b.send(r, b.target(r, "dryRun=true"), strings.NewReader(`{"unheardOf":1}`))
		if got.status >= 500 || strings.Contains(got.raw, "unheardOf") {
			t.Errorf("%s: %d %s", got.what, got.status, got.raw)
		}
		if warned := strings.Contains(got.header.Get("Warning"), "unheardOf"); !warned && got.status < 300 && server.DialectOf(r.Path) == wire.Universe {
			t.Errorf("%s: Warning is %q", got.what, got.header.Get("Warning"))
		}
	}
}

func TestOfTenParallelCreatesOfOneNameOneMakesIt(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	archive, archiveHeader := form(t, map[string]string{"name": "three"}, "a.zip", zipped(t, member{name: "z.txt", content: "z"}))
	uploads := map[string]struct {
		body   string
		header []string
	}{
		"POST /api/v1/templates/import":                {archive, archiveHeader},
		"POST /api/templates/:group/:name/files/*path": {"text", []string{"Content-Type", "text/plain"}},
	}
	b.do("POST", "/api/v1/roles", `{"name":"TWO","permissions":[]}`).want(201) // which documents can be applied for
	for _, r := range b.routes() {
		name := r.Method + " " + r.Path
		upload, uploaded := uploads[name]
		responses, _ := operationOf(b.contract, r)["responses"].(object)
		body, known := creates[name]
		switch {
		case uploaded:
			t.Run(name, func(t *testing.T) { b.createTenTimes(t, r, upload.body, upload.header...) })
		case !known && responses["201"] != nil && !nameless[name]:
			t.Errorf("%s makes something: put a body into creates, or into uploads", name)
		case known:
			t.Run(name, func(t *testing.T) { b.createTenTimes(t, r, body) })
		}
	}
	for name := range creates {
		method, path, _ := strings.Cut(name, " ")
		if !slices.ContainsFunc(b.routes(), func(r server.Route) bool { return r.Method == method && r.Path == path }) {
			t.Errorf("%s is no route", name)
		}
	}
}

func (b *besieged) createTenTimes(t *testing.T, r server.Route, body string, header ...string) {
	t.Helper()
	path := b.path(r, strings.Count(r.Path, "/:")-1, "two")
	audited := func() any { return b.do("GET", "/api/v1/audit", nil).want(200).field("total") }
	before, _ := audited().(float64)
	var all sync.WaitGroup
	statuses := make([]int, 10)
	for n := range statuses {
		all.Go(func() { statuses[n] = b.send(r, path, strings.NewReader(body), header...).status })
	}
	all.Wait()
	made, refused := 0, 0
	for _, status := range statuses {
		switch {
		case status == 201:
			made++
		case status == 409:
			refused++
		case r.Method == http.MethodPut && (status == 200 || status == 412): // it replaces
		default:
			t.Errorf("%d", status)
		}
	}
	if made != 1 || r.Method == http.MethodPost && refused != 9 {
		t.Errorf("of ten %d made it and %d were refused: %v", made, refused, statuses)
	}
	if after, _ := audited().(float64); r.Method == http.MethodPost && after != before+1 {
		t.Errorf("the audit has %v entries, want %v", after, before+1)
	}
}

func TestOfTenParallelPutsOfOneConfigurationOneMakesIt(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	before, _ := b.do("GET", "/api/v1/audit", nil).want(200).field("total").(float64)
	var all sync.WaitGroup
	statuses := make([]int, 10)
	for n := range statuses {
		all.Go(func() {
			if r, err := b.try("PUT", "/api/configurations/two", `{"command":"run"}`); err == nil {
				statuses[n] = r.status
			}
		})
	}
	all.Wait()
	if slices.ContainsFunc(statuses, func(status int) bool { return status != 204 }) {
		t.Errorf("%v: this dialect does not tell who made it", statuses)
	}
	b.do("GET", "/api/v1/audit", nil).want(200).is("total", before+1).is("data.0.action", "group.create")
}

// unasked are routes that the test calls only without permission: they end the gateway or the token, or
// wait for something that does not happen in this test.
var unasked = map[string]bool{
	"POST /api/v1/system/shutdown": true, "POST /api/v1/auth/logout": true, "POST /api/v1/auth/change-password": true,
	"POST /api/v1/auth/keys/rotate": true, "POST /api/node/reload": true,
}

// FuzzNoRequestBreaksARoute sends inputs for the decoders of bodies, queries and headers to all routes.
func FuzzNoRequestBreaksARoute(f *testing.F) {
	b := besiege(f)
	routes := b.routes()
	idle, _ := b.do("POST", "/api/v1/api-tokens", `{"name":"idle","scopes":["groups.view"]}`).want(201).field("token").(string)
	for n, r := range routes {
		f.Add(uint16(n), "page=0&cursor=x&window=-1s&since=", `"1", W/"x"`, b.body(r))
	}
	f.Fuzz(func(t *testing.T, n uint16, query, header, body string) {
		r := routes[int(n)%len(routes)]
		var headers []string
		mayNot := unasked[r.Method+" "+r.Path]
		if mayNot {
			headers = []string{"Authorization", "Bearer " + idle}
		}
		if clean := strings.TrimSpace(header); clean != "" && !strings.ContainsFunc(clean, func(c rune) bool { return c < ' ' || c > '~' }) {
			for _, name := range []string{"If-Match", "If-None-Match", "Idempotency-Key", "Last-Event-ID", "X-Prexor-Sequence"} {
				if name == "If-Match" && r.Unmatched || name == "If-None-Match" && !r.Making && r.Method != http.MethodGet {
					continue // rejected before anything else is read
				}
				headers = append(headers, name, clean)
			}
		}
		got := b.on(t).send(r, b.path(r, -1, "")+"?"+url.PathEscape(query), strings.NewReader(body), headers...)
		if got.status == http.StatusInternalServerError || mayNot && got.status < http.StatusBadRequest {
			t.Errorf("%s: %d %s", got.what, got.status, got.raw)
		}
	})
}
