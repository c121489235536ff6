package apigateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// allowed returns the CORS header for a page of an origin.
func allowed(s *site, origin string) string {
	s.t.Helper()
	return s.do("GET", "/livez", nil, "Origin", origin).header.Get("Access-Control-Allow-Origin")
}

// opens reports whether a page of an origin may open a WebSocket.
func opens(s *site, origin string) bool {
	s.t.Helper()
	conn, resp, err := websocket.Dial(s.t.Context(), s.url+"/api/instances/none00/live-log", &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {origin}, "Authorization": {"Bearer " + s.token}},
		HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	})
	if err != nil {
		if resp == nil || resp.StatusCode != http.StatusForbidden {
			s.t.Fatalf("neither open nor forbidden: %v", err)
		}
		return false
	}
	_ = conn.CloseNow()
	return true
}

func TestSettingsApplyOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.do("GET", "/api/v1/cluster/config", nil).want(200).is("activeVersion", 0).is("patch", map[string]any{}).
		is("effective.http.cors.allowedOrigins", []string{}).is("effective.security.rateLimiting.loginsPerMinute", 0)
	a.do("POST", "/api/v1/cluster/config", `{"parentVersion":0,"patch":{"http":{"cors":{"allowedOrigins":["https://a.example"]}}},"reason":"only the panel"}`).
		want(201).is("version", 1).is("parentVersion", 0)
	for _, s := range []*site{a, b} {
		await.That(t, "the page of the named origin is allowed", func() string {
			got := allowed(s, "https://a.example")
			return await.Unless(got == "https://a.example", "allowed %q", got)
		})
		if allowed(s, "https://b.example") != "" || !opens(s, "https://a.example") || opens(s, "https://b.example") {
			t.Error("the wrong pages are let in")
		}
	}
	b.do("POST", "/api/v1/cluster/config", `{"parentVersion":0,"patch":{"security.rateLimiting.loginsPerMinute":4}}`).want(409).
		is("error.code", "PARENT_VERSION_STALE").naming("active version is 1")
	b.do("POST", "/api/v1/cluster/config", `{"parentVersion":1,"patch":{"security.rateLimiting.loginsPerMinute":4}}`).want(201).is("version", 2)
	await.That(t, "version 2 holds on the other gateway", func() string {
		r := a.do("GET", "/api/v1/cluster/config", nil).want(200)
		return await.Unless(r.field("effective.security.rateLimiting.loginsPerMinute") == 4.0, "%s", r.raw)
	})
	a.do("GET", "/api/v1/cluster", nil).want(200).is("activeConfigVersion", 2)
	await.That(t, "the gateways share the limit", func() string {
		n := len(a.view.Snapshot().ServiceSessions("apigateway"))
		return await.Unless(n == 2, "%d gateways", n)
	})
	for range 2 { // half of the limit
		a.as("").do("POST", "/api/v1/auth/login", `{"username":"admin","password":"wrong"}`).want(401)
	}
	a.as("").do("POST", "/api/v1/auth/login", `{"username":"admin","password":"wrong"}`).want(429)

	list := a.do("GET", "/api/v1/cluster/config/versions", nil).want(200).is("activeVersion", 2)
	if versions := list.field("versions").([]any); len(versions) != 2 || versions[0].(map[string]any)["isActive"] != true || versions[1].(map[string]any)["reason"] != "only the panel" {
		t.Errorf("versions %s", list.raw)
	}
	a.do("GET", "/api/v1/cluster/config/versions/2", nil).want(200).is("parentVersion", 1).is("mutator", "admin").
		is("patch.http.cors.allowedOrigins", []string{"https://a.example"}).is("patch.security.rateLimiting.loginsPerMinute", 4)
	third := newSiteOn(t, a.etcd).as(a.token) // a gateway that starts later
	third.do("GET", "/api/v1/cluster/config", nil).want(200).is("activeVersion", 2).is("effective.security.rateLimiting.loginsPerMinute", 4)

	a.do("POST", "/api/v1/cluster/config/rollback", `{"targetVersion":1}`).want(200).is("activeVersion", 1)
	a.do("POST", "/api/v1/cluster/config", `{"parentVersion":1,"patch":{"http.cors.allowedOrigins":null}}`).want(201).is("version", 3)
	a.do("GET", "/api/v1/cluster/config", nil).want(200).is("patch", map[string]any{}).is("effective.http.cors.allowedOrigins", []string{})
	a.do("POST", "/api/v1/cluster/config/rollback", `{"targetVersion":0}`).want(200).is("activeVersion", 0)
	a.do("POST", "/api/v1/cluster/config", `{"parentVersion":0,"patch":{"http.cors.allowedOrigins":[]}}`).want(201).is("version", 4)
	a.do("GET", "/api/v1/audit", nil).want(200).naming("config.update").naming("config.rollback").naming("only the panel")
}

func TestUnknownSettingIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/cluster/config", `{"parentVersion":0,"patch":{"security":{"rateLimiting":{"loginsPerMinute":100}}}}`).want(201)
	before := s.revision()
	for body, field := range map[string]string{
		`{"patch":{}}`:                                                              "parentVersion",
		`{"parentVersion":1}`:                                                       "patch",
		`{"parentVersion":1,"patch":[]}`:                                            "patch",
		`{"parentVersion":1,"patch":{}}`:                                            "patch",
		`{"parentVersion":1,"patch":{"http":{}}}`:                                   "patch.http",
		`{"parentVersion":1,"patch":{"http":{"port":1}}}`:                           "patch.http.port",
		`{"parentVersion":1,"patch":{"security":{"jwtSecret":"x"}}}`:                "patch.security.jwtSecret",
		`{"parentVersion":1,"patch":{"http":{"cors":{"allowedOrigins":["nope"]}}}}`: "patch.http.cors.allowedOrigins[0]",
		`{"parentVersion":1,"patch":{"http":{"cors":{"allowedOrigins":[]}},"http.cors.allowedOrigins":[]}}`:       "is given twice",
		`{"parentVersion":1,"patch":` + strings.Repeat(`{"a":`, 90) + `1` + strings.Repeat(`}`, 90) + `}`:         "patch.a.a.a.a.a",
		`{"parentVersion":1,"patch":{"security":{"jwtExpirationMinutes":0}}}`:                                     "patch.security.jwtExpirationMinutes",
		`{"parentVersion":1,"patch":{"security":{"jwtExpirationMinutes":43201}}}`:                                 "between 1 and 43200",
		`{"parentVersion":1,"patch":{"security":{"lockout":{"enabled":"no"}}}}`:                                   "must be true or false",
		`{"parentVersion":1,"patch":{"security":{"lockout":{"maxFailures":101}}}}`:                                "patch.security.lockout.maxFailures",
		`{"parentVersion":1,"patch":{"security":{"lockout":{"lockSeconds":0}}}}`:                                  "patch.security.lockout.lockSeconds",
		`{"parentVersion":1,"patch":{"security":{"lockout":{"windowSeconds":90000}}}}`:                            "patch.security.lockout.windowSeconds",
		`{"parentVersion":1,"patch":{"security":{"passwordReset":{"ttlMinutes":1441}}}}`:                          "patch.security.passwordReset.ttlMinutes",
		`{"parentVersion":1,"patch":{"security":{"passwordReset":{"enabled":true}}}}`:                             "the settings are http.cors.allowedOrigins",
		`{"parentVersion":1,"patch":{"http.cors.allowedOrigins":[]},"reason":"` + strings.Repeat("x", 257) + `"}`: "reason",
	} {
		s.do("POST", "/api/v1/cluster/config", body).want(422).naming(field)
	}
	s.do("POST", "/api/v1/cluster/config", `{"parentVersion":1,"patch":{"security.rateLimiting.loginsPerMinute":100}}`).want(200).is("version", 1) // unchanged
	s.do("POST", "/api/v1/cluster/config?dryRun=true", `{"parentVersion":1,"patch":{"security.rateLimiting.loginsPerMinute":7}}`).want(200).
		is("action", "update").is("diff", []any{map[string]any{"field": "security.rateLimiting.loginsPerMinute", "from": 100, "to": 7}})
	s.do("POST", "/api/v1/cluster/config/rollback", `{}`).want(422).naming("targetVersion")
	s.do("POST", "/api/v1/cluster/config/rollback", `{"targetVersion":9}`).want(404)
	s.do("POST", "/api/v1/cluster/config/rollback", `{"targetVersion":1}`).want(200)
	s.do("POST", "/api/v1/cluster/config/rollback?dryRun=true", `{"targetVersion":0}`).want(200).is("action", "update").is("version", 0)
	s.do("GET", "/api/v1/cluster/config/versions/9", nil).want(404)
	s.do("GET", "/api/v1/cluster/config/versions/x", nil).want(400)
	s.do("PATCH", "/api/v1/admin/cors/origins", `{"action":"toggle","origin":"https://a.example"}`).want(422).naming("action")
	s.do("PATCH", "/api/v1/admin/cors/origins", `{"action":"add","origin":"a.example"}`).want(422).naming("origin")
	s.do("PATCH", "/api/v1/admin/network/allowed-subnets", `{"action":"add","cidr":"10.0.0.0/33"}`).want(422).naming("cidr")
	s.do("PATCH", "/api/v1/admin/network/allowed-subnets", `{"action":"remove","cidr":"10.0.0.0/8"}`).want(200).is("changed", false).is("wideOpen", true)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
}

func TestOriginsAreAddedAndRemovedWhileTheGatewayServes(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, storetest.Start(t), func(c *Config) { c.Origins = []string{"https://a.example"} })
	s = s.as(s.login("admin", adminPassword))
	if allowed(s, "https://b.example") != "" || opens(s, "https://b.example") {
		t.Error("a page of another origin is let in")
	}
	s.do("PATCH", "/api/v1/admin/cors/origins", `{"action":"add","origin":"https://B.example"}`).want(200).
		is("changed", true).is("restartRequired", false).is("version", 1).is("allowedOrigins", []string{"https://a.example", "https://b.example"}).is("wideOpen", false)
	if allowed(s, "https://b.example") == "" || !opens(s, "https://b.example") || allowed(s, "https://a.example") == "" {
		t.Error("a page of an allowed origin is refused")
	}
	s.do("PATCH", "/api/v1/admin/cors/origins", `{"action":"add","origin":"https://b.example"}`).want(200).is("changed", false).is("version", 1)
	s.do("PATCH", "/api/v1/admin/cors/origins", `{"action":"remove","origin":"https://a.example"}`).want(200).is("version", 2)
	if allowed(s, "https://a.example") != "" {
		t.Error("a removed origin is let in")
	}
	r := s.do("PATCH", "/api/v1/admin/cors/origins", `{"action":"remove","origin":"https://b.example"}`).want(200).is("allowedOrigins", []string{})
	if strings.Contains(r.raw, "warning") {
		t.Errorf("without *: %s", r.raw)
	}
}

func TestAnAnswerThatLeavesAllOriginsAllowedSaysSo(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, storetest.Start(t), func(c *Config) { c.Origins = []string{"*"} })
	s = s.as(s.login("admin", adminPassword))
	const path = "/api/v1/admin/cors/origins"
	warning, _ := s.do("PATCH", path, `{"action":"add","origin":"https://a.example"}`).want(200).
		is("allowedOrigins", []string{"*", "https://a.example"}).is("wideOpen", true).field("warning").(string)
	if !strings.Contains(warning, `"action":"remove","origin":"*"`) {
		t.Errorf("the warning does not say what to do: %q", warning)
	}
	s.do("PATCH", path, `{"action":"add","origin":"https://a.example"}`).want(200).is("changed", false).is("wideOpen", true)
	r := s.do("PATCH", path, `{"action":"remove","origin":"*"}`).want(200).is("allowedOrigins", []string{"https://a.example"}).is("wideOpen", false)
	if strings.Contains(r.raw, "warning") {
		t.Errorf("without *: %s", r.raw)
	}
	if allowed(s, "https://b.example") != "" {
		t.Error("a page of another origin is let in")
	}
}

func TestSubnetsAreEnforcedWithoutSelfLockout(t *testing.T) {
	t.Parallel()
	behind := func(c *Config) { c.BehindProxy = []string{"127.0.0.0/8"} }
	a := newSiteOn(t, storetest.Start(t), behind)
	a = a.as(a.login("admin", adminPassword))
	b := newSiteOn(t, a.etcd, behind).as(a.token)
	const header, inside, outside = "X-Forwarded-For", "198.51.100.1, 10.1.2.3", "10.1.2.3, 198.51.100.1"
	subnets := "/api/v1/admin/network/allowed-subnets"
	a.do("PATCH", subnets, `{"action":"add","cidr":"10.0.0.0/8"}`, header, outside).want(422).naming("198.51.100.1")
	a.do("POST", "/api/v1/cluster/config", `{"parentVersion":0,"patch":{"network":{"allowedSubnets":["10.0.0.0/8"]}}}`, header, outside).want(422).naming("network.allowedSubnets")
	a.do("GET", "/api/v1/cluster/config", nil).want(200).is("activeVersion", 0)
	a.do("PATCH", subnets, `{"action":"add","cidr":"10.0.0.0/8"}`, header, inside).want(200).
		is("changed", true).is("allowedSubnets", []string{"10.0.0.0/8"}).is("wideOpen", false)
	for _, s := range []*site{a, b} {
		await.That(t, "an address outside is refused", func() string {
			r := s.do("GET", "/api/v1/groups", nil, header, outside)
			return await.Unless(r.status == 403 && r.field("error.code") == "FORBIDDEN", "%s", r.raw)
		})
		s.as("").do("POST", "/api/v1/auth/login", `{}`, header, outside).want(403)
		s.do("GET", "/api/instances", nil, header, outside).want(403)
		s.do("GET", "/nope", nil, header, outside).want(403)
		s.do("GET", "/api/v1/groups", nil, header, inside).want(200)
		s.do("GET", "/api/v1/groups", nil).want(200) // from the host itself
		for _, path := range []string{"/livez", "/readyz", "/health", "/ready", "/api/v1/system/health", "/api/v1/system/ready", "/api/v1/system/version"} {
			s.do("GET", path, nil, header, outside).want(200)
		}
	}
	before := a.revision()
	a.do("PATCH", subnets, `{"action":"remove","cidr":"10.0.0.0/8"}`, header, outside).want(403)
	if keys := a.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	a.do("POST", "/api/v1/cluster/config", `{"parentVersion":1,"patch":{"network.allowedSubnets":["192.0.2.0/24"]}}`, header, inside).want(422)
	// From the host itself every change is allowed. Then a rollback must not lock its caller out
	// either.
	a.do("POST", "/api/v1/cluster/config", `{"parentVersion":1,"patch":{"network.allowedSubnets":["198.51.100.0/24"]}}`).want(201)
	a.do("POST", "/api/v1/cluster/config/rollback", `{"targetVersion":1}`, header, outside).want(422).naming("lock you out")
	audit := a.do("GET", "/api/v1/audit?class=CHANGE", nil).want(200)
	if e := audit.data()[1].(map[string]any); e["action"] != "config.update" || e["ipAddress"] != "10.1.2.3" {
		t.Errorf("entry %v", e)
	}
}

func TestForwardedAddressIsUntrustedByDefault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/cluster/config", `{"parentVersion":0,"patch":{"security.rateLimiting.perIpPerMinute":3}}`).want(201)
	var last *reply
	for n := range 4 {
		last = s.as("").do("GET", "/api/v1/groups", nil, "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", n))
	}
	last.want(429)
	s.do("POST", "/api/v1/cluster/config", `{"parentVersion":1,"patch":{"network.trustedProxies":["127.0.0.1"]}}`).want(201)
	for n := range 4 {
		s.as("").do("GET", "/api/v1/groups", nil, "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", n)).want(401)
	}
}

func TestConcurrentSettingsVersionsCreateOne(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	var all sync.WaitGroup
	statuses := make([]int, 10)
	for n := range statuses {
		all.Go(func() {
			s := []*site{a, b}[n%2]
			r, err := s.try("POST", "/api/v1/cluster/config", fmt.Sprintf(`{"parentVersion":0,"patch":{"security.rateLimiting.loginsPerMinute":%d}}`, 100+n))
			if err == nil {
				statuses[n] = r.status
			}
		})
	}
	all.Wait()
	slices.Sort(statuses)
	if want := []int{201, 409, 409, 409, 409, 409, 409, 409, 409, 409}; !slices.Equal(statuses, want) {
		t.Errorf("%v", statuses)
	}
}

func TestTheLatestHundredVersionsAreKeptAndTheActiveOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for n := range 101 {
		s.do("POST", "/api/v1/cluster/config", fmt.Sprintf(`{"parentVersion":%d,"patch":{"security.rateLimiting.loginsPerMinute":%d}}`, n, 1000+n)).want(201)
	}
	s.do("GET", "/api/v1/cluster/config/versions/1", nil).want(404)
	s.do("POST", "/api/v1/cluster/config/rollback", `{"targetVersion":2}`).want(200)
	s.do("POST", "/api/v1/cluster/config", `{"parentVersion":2,"patch":{"security.rateLimiting.loginsPerMinute":5000}}`).want(201).is("version", 102)
	if versions := s.do("GET", "/api/v1/cluster/config/versions", nil).want(200).field("versions").([]any); len(versions) != 100 {
		t.Errorf("%d versions", len(versions))
	}
	s.do("GET", "/api/v1/cluster/config/versions/2", nil).want(200)
	s.do("GET", "/api/v1/cluster/config/versions/3", nil).want(404)
	if _, err := store.Get(t.Context(), s.store, keys.ConfigVersion(3)); err == nil {
		t.Error("the record is still there")
	}
}

func TestInvalidNetworksPreventStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for field, edit := range map[string]func(*Config){
		"network.allowed-subnets": func(c *Config) { c.AllowedSubnets = []string{"10.0.0.0/33"} },
		"behind-proxy":            func(c *Config) { c.BehindProxy = []string{"localhost"} },
	} {
		cfg := s.gateway.cfg
		edit(&cfg)
		if _, err := New(cfg); errs.FieldOf(err) != field || !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestHowLongLoginsLastAndWhenTheyAreLockedOutIsSetForAllGateways(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.do("GET", "/api/v1/cluster/config", nil).want(200).is("effective.security.jwtExpirationMinutes", 1440).
		is("effective.security.lockout.enabled", true).is("effective.security.lockout.maxFailures", 5).
		is("effective.security.lockout.lockSeconds", 900).is("effective.security.passwordReset.ttlMinutes", 30)
	a.do("POST", "/api/v1/cluster/config", `{"parentVersion":0,"patch":{"security":{
		"jwtExpirationMinutes":20000, "lockout":{"maxFailures":2,"lockSeconds":60}, "rateLimiting":{"perUserPerMinute":100000}}}}`).want(201)
	await.That(t, "it holds on the other gateway", func() string {
		got := b.do("GET", "/api/v1/system/settings", nil).want(200)
		return await.Unless(got.field("effective.security.lockout.maxFailures") == 2.0, "%s", got.raw)
	})
	login := b.do("POST", "/api/v1/auth/login", map[string]string{"username": "admin", "password": adminPassword}).want(200).is("expiresInSeconds", 20000*60)
	long := b.as(login.field("token").(string))
	long.do("POST", "/api/v1/auth/refresh", nil).want(200).is("expiresInSeconds", 20000*60)

	a.do("POST", "/api/v1/cluster/config", `{"parentVersion":1,"patch":{"security.jwtExpirationMinutes":5}}`).want(201)
	await.That(t, "logins are short on the other gateway", func() string {
		got := b.do("GET", "/api/v1/system/settings", nil).want(200)
		return await.Unless(got.field("effective.security.jwtExpirationMinutes") == 5.0, "%s", got.raw)
	})
	long.do("POST", "/api/v1/auth/refresh", nil).want(200).is("expiresInSeconds", 300)
	long.do("POST", "/api/v1/auth/logout", nil).want(200)
	raw := a.etcd.Raw()
	all, err := raw.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var longest int64
	for _, l := range all.Leases {
		left, err := raw.TimeToLive(t.Context(), l.ID)
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, left.GrantedTTL)
	}
	if longest < 20000*60 {
		t.Errorf("the end of a login is known for %d s, and its tokens may be good longer", longest)
	}

	for n := range 2 {
		tries([]*site{a, b}[n%2], "bob", "wrong").want(401)
	}
	untilTold(t, a, "bob", 429)
	b.do("POST", "/api/v1/cluster/config", `{"parentVersion":2,"patch":{"security.lockout.enabled":false}}`).want(201)
	untilTold(t, a, "bob", 401)
	for n := range 5 {
		tries(b, "ann", fmt.Sprint("wrong", n)).want(401)
	}
}

// untilTold waits until logins under a name get a status.
func untilTold(t *testing.T, s *site, name string, status int) {
	t.Helper()
	await.That(t, "logins of "+name+" are answered otherwise", func() string {
		got := tries(s, name, "wrong")
		return await.Unless(got.status == status, "%s", got.raw)
	})
}
