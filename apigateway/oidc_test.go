package apigateway

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/orreryhq/orrery/apigateway/internal/auth/oidclogin"
	"github.com/orreryhq/orrery/libs/errs"
)

// fakeProvider is an OpenID Connect provider that can misbehave. The real one is in e2e/oidc.
type fakeProvider struct {
	*httptest.Server
	key, other *rsa.PrivateKey

	mu sync.Mutex
	// claims are those of the next ID tokens, besides iss, aud, exp and nonce.
	claims jwt.MapClaims
	// edit changes the claims of an ID token before it is signed.
	edit func(jwt.MapClaims)
	// forged signs with a key that the provider does not publish, and away breaks all connections.
	forged, away bool
	// codes are the requests for which a code was issued and not used.
	codes map[string]url.Values
}

// clientSecret is what the fake provider knows the gateway by.
const clientSecret = "s3cret"

func newFakeProvider(t *testing.T) *fakeProvider {
	t.Helper()
	p := &fakeProvider{codes: map[string]url.Values{}, claims: jwt.MapClaims{
		"sub": "1", "preferred_username": "Ann", "email": "ann@example.org", "email_verified": true, "groups": []string{"staff", "ops"},
	}}
	for _, key := range []**rsa.PrivateKey{&p.key, &p.other} {
		var err error
		if *key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		enc := base64.RawURLEncoding
		sendJSON(w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": enc.EncodeToString(p.key.N.Bytes()), "e": enc.EncodeToString(big.NewInt(int64(p.key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.away {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func sendJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// authorize does what the provider's page does after the user logged in: it issues a code.
func (p *fakeProvider) authorize(page string) (code, state string) {
	u, _ := url.Parse(page)
	p.mu.Lock()
	defer p.mu.Unlock()
	code = rand.Text()
	p.codes[code] = u.Query()
	return code, u.Query().Get("state")
}

func (p *fakeProvider) token(w http.ResponseWriter, r *http.Request) {
	refuse := func(code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%q}`, code)
	}
	asked, ok := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	id, secret, _ := r.BasicAuth()
	switch {
	case id != "orrery" || secret != clientSecret:
		refuse("invalid_client")
		return
	case !ok, oidclogin.Challenge(r.FormValue("code_verifier")) != asked.Get("code_challenge"), r.FormValue("redirect_uri") != asked.Get("redirect_uri"):
		refuse("invalid_grant")
		return
	}
	claims := jwt.MapClaims{"iss": p.URL, "aud": "orrery", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nonce": asked.Get("nonce")}
	for name, value := range p.claims {
		claims[name] = value
	}
	if p.edit != nil {
		p.edit(claims)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = "1"
	key := p.key
	if p.forged {
		key = p.other
	}
	signed, _ := token.SignedString(key)
	sendJSON(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": signed})
}

// oidcOf configures a gateway for a provider.
func oidcOf(issuer string) OIDC {
	return OIDC{Issuer: issuer, ClientID: "orrery", ClientSecret: clientSecret, Roles: []string{"ops=OPERATOR", "staff=VIEWER"}}
}

// providerSite is a gateway with a fake provider.
func providerSite(t *testing.T, edit ...func(*Config)) (*site, *fakeProvider) {
	t.Helper()
	p := newFakeProvider(t)
	return newSite(t, append([]func(*Config){func(c *Config) { c.OIDC = oidcOf(p.URL) }}, edit...)...), p
}

const (
	verifier = "a-verifier-that-only-the-client-knows-0123456789"
	loopback = "http://127.0.0.1:9/done"
)

// begin sends a browser to the provider, and returns the page there and the browser's cookie.
func begin(s *site) (page, cookie string) {
	s.t.Helper()
	r := s.as("").do("GET", "/api/v1/auth/oidc/login?"+url.Values{
		"redirect_uri": {loopback}, "code_challenge": {oidclogin.Challenge(verifier)}, "state": {"mine"},
	}.Encode(), nil).want(302)
	cookie, _, _ = strings.Cut(r.header.Get("Set-Cookie"), ";")
	return r.header.Get("Location"), cookie
}

// back sends a browser back from the provider, and returns where it goes then.
func back(s *site, query url.Values, cookie string) url.Values {
	s.t.Helper()
	r := s.as("").do("GET", "/api/v1/auth/oidc/callback?"+query.Encode(), nil, "Cookie", cookie).want(302)
	to, err := url.Parse(r.header.Get("Location"))
	if err != nil || !strings.HasPrefix(r.header.Get("Location"), loopback+"?") || to.Query().Get("state") != "mine" {
		s.t.Errorf("the browser goes to %s", r.header.Get("Location"))
	}
	return to.Query()
}

// loginAt logs in at the provider, and returns what comes back to the client.
func loginAt(s *site, p *fakeProvider) url.Values {
	s.t.Helper()
	page, cookie := begin(s)
	code, state := p.authorize(page)
	return back(s, url.Values{"code": {code}, "state": {state}}, cookie)
}

// exchange exchanges a grant for tokens.
func exchange(s *site, code, verifier string) *reply {
	return s.as("").do("POST", "/api/v1/auth/oidc/exchange", map[string]string{"code": code, "codeVerifier": verifier})
}

func TestAUserOfAProviderIsCreatedAtTheFirstLoginAndFollowsTheGroups(t *testing.T) {
	t.Parallel()
	s, p := providerSite(t)
	s.as("").do("GET", "/api/v1/auth/oidc", nil).want(200).is("enabled", true).is("issuer", p.URL).is("loginUrl", s.url+"/api/v1/auth/oidc/login")
	got := exchange(s, loginAt(s, p).Get("code"), verifier).want(200).is("user.username", "ann").is("user.role", "OPERATOR").is("user.provider", p.URL).is("user.email", "ann@example.org")
	ann := s.as(fmt.Sprint(got.field("token")))
	ann.do("GET", "/api/v1/auth/me", nil).want(200).is("provider", p.URL)
	s.refresh(got.field("refreshToken")).want(200)
	s.do("GET", "/api/v1/users/admin", nil).want(200).is("provider", nil)
	s.do("GET", "/api/v1/audit?action=user.create", nil).want(200).is("total", 1).is("data.0.username", "ann").naming(p.URL)

	p.claims["groups"], p.claims["preferred_username"] = []string{"staff"}, "renamed"
	exchange(s, loginAt(s, p).Get("code"), verifier).want(200).is("user.username", "ann").is("user.role", "VIEWER")
	ann.do("POST", "/api/v1/groups", `{"name":"x"}`).want(403) // the role of a new login applies to all
	s.do("GET", "/api/v1/audit?action=user.update", nil).want(200).is("total", 1)
	p.claims["groups"] = "ops" // some providers send a single group as a text
	exchange(s, loginAt(s, p).Get("code"), verifier).want(200).is("user.role", "OPERATOR")
	s.do("GET", "/api/v1/audit?action=auth.login", nil).want(200).is("data.0.username", "ann")

	tries(s.as(""), "ann", "").want(401)
	ann.do("POST", "/api/v1/auth/change-password", `{"currentPassword":"","newPassword":"correct horse"}`).want(409).naming(p.URL)
	ann.do("POST", "/api/v1/auth/second-factor", `{"currentPassword":""}`).want(409).naming(p.URL)
	s.do("PATCH", "/api/v1/users/ann", `{"password":"correct horse"}`).want(409).naming(p.URL)
	s.do("PATCH", "/api/v1/users/ann", `{"role":"ADMIN"}`).want(409).naming(p.URL)
	s.do("PATCH", "/api/v1/users/ann", `{"username":"anne"}`).want(200)
	exchange(s, loginAt(s, p).Get("code"), verifier).want(200).is("user.username", "anne") // known by the subject
}

func TestAGrantIsRedeemedOnceAndByTheClientThatBegan(t *testing.T) {
	t.Parallel()
	s, p := providerSite(t)
	b := newSiteOn(t, s.etcd, func(c *Config) { c.OIDC = oidcOf(p.URL) })
	grant := loginAt(s, p).Get("code")
	exchange(s, grant, "another verifier").want(401)
	exchange(s, grant[1:], verifier).want(401)
	exchange(s, "", verifier).want(401)
	got := exchange(b, grant, verifier).want(200) // any gateway
	exchange(s, grant, verifier).want(401).naming("used before")
	eventually(t, s.as(fmt.Sprint(got.field("token"))), "GET", "/api/v1/auth/me", 401)
	s.do("GET", "/api/v1/audit?action=auth.refresh-reused", nil).want(200).is("total", 1)
}

func TestAGrantIsGoodForAMinuteAndALoginForTen(t *testing.T) {
	t.Parallel()
	p := newFakeProvider(t)
	var mu sync.Mutex
	var by time.Duration
	s := newSite(t, func(c *Config) {
		c.OIDC = oidcOf(p.URL)
		c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(by) }
	})
	wait := func(d time.Duration) { mu.Lock(); by += d; mu.Unlock() }
	grant := loginAt(s, p).Get("code")
	wait(time.Minute)
	exchange(s, grant, verifier).want(401)
	page, cookie := begin(s)
	code, state := p.authorize(page)
	wait(oidclogin.AttemptTime)
	s.as("").do("GET", "/api/v1/auth/oidc/callback?"+url.Values{"code": {code}, "state": {state}}.Encode(), nil, "Cookie", cookie).want(400).naming("10 minutes")
}

func TestAnAnswerOfTheProviderThatIsNotForTheLoginIsRefused(t *testing.T) {
	t.Parallel()
	s, p := providerSite(t)
	page, cookie := begin(s)
	otherPage, otherCookie := begin(s)
	code, state := p.authorize(page)
	_, otherState := p.authorize(otherPage)
	for name, c := range map[string]struct{ state, cookie string }{
		"wrong state":               {"x", cookie},
		"no state":                  {"", cookie},
		"the state of another":      {otherState, cookie},
		"the cookie of another":     {state, otherCookie},
		"no cookie":                 {state, ""},
		"a cookie that is no login": {state, "orrery_oidc=x"},
		"a cookie that was changed": {state, cookie[:len(cookie)-2] + "AA"},
	} {
		r := s.as("").do("GET", "/api/v1/auth/oidc/callback?"+url.Values{"code": {code}, "state": {c.state}}.Encode(), nil, "Cookie", c.cookie)
		if r.status != 400 || !strings.Contains(r.raw, "begun in this browser") {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
	}
	exchange(s, back(s, url.Values{"code": {code}, "state": {state}}, cookie).Get("code"), verifier).want(200)
	again := back(s, url.Values{"code": {code}, "state": {state}}, cookie) // the provider's code
	if again.Get("error") != "access_denied" || !strings.Contains(again.Get("error_description"), "used before or has expired") {
		t.Errorf("a code that was used: %v", again)
	}
	denied := back(s, url.Values{"error": {"access_denied"}, "error_description": {"the user said no"}, "state": {otherState}}, otherCookie)
	if !strings.Contains(denied.Get("error_description"), "the user said no") {
		t.Errorf("a refusal of the provider: %v", denied)
	}
}

func TestAnIDTokenThatIsNotAcceptableIsRefusedAndExplained(t *testing.T) {
	t.Parallel()
	s, p := providerSite(t)
	set := func(name string, value any) func(jwt.MapClaims) {
		return func(c jwt.MapClaims) { c[name] = value }
	}
	for name, c := range map[string]struct {
		edit   func(jwt.MapClaims)
		forged bool
		says   string
	}{
		"a wrong nonce":                    {set("nonce", "x"), false, "nonce"},
		"no nonce":                         {func(c jwt.MapClaims) { delete(c, "nonce") }, false, "nonce"},
		"an expired token":                 {set("exp", time.Now().Add(-time.Hour).Unix()), false, "expired at"},
		"a token for another client":       {set("aud", "another"), false, "audience"},
		"a token of another issuer":        {set("iss", "https://evil.example"), false, "issue"},
		"a signature with another key":     {nil, true, "signature"},
		"no subject":                       {set("sub", ""), false, "no subject"},
		"no name":                          {func(c jwt.MapClaims) { delete(c, "preferred_username") }, false, "oidc.username-claim"},
		"a name that is no text":           {set("preferred_username", 7), false, "oidc.username-claim"},
		"a name that no user can have":     {set("preferred_username", "ann@example.org"), false, "oidc.username-claim"},
		"groups that are no list of texts": {set("groups", map[string]any{"a": 1}), false, "oidc.groups-claim"},
		"no groups":                        {func(c jwt.MapClaims) { delete(c, "groups") }, false, "names no groups"},
		"groups that give no role":         {set("groups", []string{"guests"}), false, "oidc.roles"},
		"the name of a local user":         {set("preferred_username", "admin"), false, "local user admin"},
	} {
		p.edit, p.forged = c.edit, c.forged
		got := loginAt(s, p)
		if got.Get("error") != "access_denied" || !strings.Contains(got.Get("error_description"), c.says) || got.Get("code") != "" {
			t.Errorf("%s: %v", name, got)
		}
	}
	if n := s.view.Snapshot().Users.Len(); n != 1 {
		t.Errorf("there are %d users", n)
	}
	s.do("GET", "/api/v1/audit?action=auth.login-failed", nil).want(200).is("data.0.username", "").naming("login provider: there is a local user admin")
}

func TestAnotherAccountOfTheProviderDoesNotGetTheUserOfAName(t *testing.T) {
	t.Parallel()
	s, p := providerSite(t)
	exchange(s, loginAt(s, p).Get("code"), verifier).want(200)
	p.claims["sub"] = "2" // another person has the name now
	if got := loginAt(s, p); !strings.Contains(got.Get("error_description"), "belongs to another account") {
		t.Errorf("%v", got)
	}
	s.do("DELETE", "/api/v1/users/ann", nil).want(204)
	exchange(s, loginAt(s, p).Get("code"), verifier).want(200).is("user.username", "ann")
}

func TestARoleThatDoesNotExistAndTheLastAdministratorAreExplained(t *testing.T) {
	t.Parallel()
	s, p := providerSite(t, func(c *Config) { c.OIDC.Roles = []string{"wheel=ADMIN", "ops=BUILDER", "staff=VIEWER"} })
	if got := loginAt(s, p); !strings.Contains(got.Get("error_description"), "BUILDER does not exist") {
		t.Errorf("%v", got)
	}
	s.do("POST", "/api/v1/roles", `{"name":"BUILDER","permissions":["groups.view"]}`).want(201)
	exchange(s, loginAt(s, p).Get("code"), verifier).want(200).is("user.role", "BUILDER")
	p.claims["groups"] = []string{"wheel"}
	ann := s.as(fmt.Sprint(exchange(s, loginAt(s, p).Get("code"), verifier).want(200).is("user.role", "ADMIN").field("token")))
	ann.do("DELETE", "/api/v1/users/admin", nil).want(204)
	p.claims["groups"] = []string{"staff"}
	if got := loginAt(s, p); !strings.Contains(got.Get("error_description"), "last user with the role ADMIN") {
		t.Errorf("%v", got)
	}
}

func TestAProviderThatIsAwayDelaysNothingElseAndIsUsedWhenItIsBack(t *testing.T) {
	t.Parallel()
	p := newFakeProvider(t)
	p.away = true
	s := newSite(t, func(c *Config) { c.OIDC = oidcOf(p.URL) }) // starts, and serves passwords
	login := func() url.Values {
		r := s.as("").do("GET", "/api/v1/auth/oidc/login?"+url.Values{
			"redirect_uri": {loopback}, "code_challenge": {oidclogin.Challenge(verifier)}, "state": {"mine"},
		}.Encode(), nil).want(302)
		to, _ := url.Parse(r.header.Get("Location"))
		return to.Query()
	}
	if got := login(); got.Get("error") != "temporarily_unavailable" || !strings.Contains(got.Get("error_description"), "log in with a password") || got.Get("state") != "mine" {
		t.Errorf("%v", got)
	}
	set := func(away bool) { p.mu.Lock(); p.away = away; p.mu.Unlock() }
	set(false)
	exchange(s, loginAt(s, p).Get("code"), verifier).want(200)
	page, cookie := begin(s)
	code, state := p.authorize(page)
	set(true) // between the page and the callback
	if got := back(s, url.Values{"code": {code}, "state": {state}}, cookie); got.Get("error") != "temporarily_unavailable" {
		t.Errorf("%v", got)
	}
	set(false)
	exchange(s, loginAt(s, p).Get("code"), verifier).want(200)
}

func TestWithoutAProviderTheRoutesSaySo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.as("").do("GET", "/api/v1/auth/oidc", nil).want(200).is("enabled", false).is("loginUrl", nil)
	for _, route := range []string{"login", "callback"} {
		s.as("").do("GET", "/api/v1/auth/oidc/"+route, nil).want(404).is("error.code", "NOT_ENABLED")
	}
	exchange(s, "x", "y").want(404).is("error.code", "NOT_ENABLED")
}

func TestALoginEndsOnlyAtAllowedAddresses(t *testing.T) {
	t.Parallel()
	origins := []string{"https://panel.example.org", "*"}
	for uri, allowed := range map[string]bool{
		"/dashboard": true, "/": true, "http://127.0.0.1:4711/x": true, "http://[::1]:1/": true, "https://panel.example.org/a?b=c": true,
		"": false, "dashboard": false, "//evil.example": false, "/\\evil.example": false, "https://evil.example": false, "http://localhost:1/": false,
		"https://127.0.0.1/": false, "http://127.0.0.1.evil.example/": false, "https://panel.example.org.evil.example/": false, "http://panel.example.org/": false,
		"https://a:b@panel.example.org/": false, "javascript:alert(1)": false, "/a#b": false, "https:panel.example.org": false, "http://127.0.0.1@evil.example/": false,
	} {
		if err := oidclogin.CheckRedirect(uri, origins); (err == nil) != allowed || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", uri, err)
		}
	}
	s, _ := providerSite(t)
	for query, field := range map[string]string{
		"redirect_uri=https://evil.example": "redirect_uri", "redirect_uri=/x": "code_challenge", "redirect_uri=/x&code_challenge=short": "code_challenge",
		"redirect_uri=/x&code_challenge=" + oidclogin.Challenge("v") + "&state=" + strings.Repeat("s", 513): "state",
		"redirect_uri=/" + strings.Repeat("x", 1024) + "&code_challenge=" + oidclogin.Challenge("v"):        "redirect_uri",
	} {
		s.as("").do("GET", "/api/v1/auth/oidc/login?"+query, nil).want(422).naming(field)
	}
}

func TestOIDCSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*OIDC)
		says string
	}{
		"all right":           {func(*OIDC) {}, ""},
		"none":                {func(o *OIDC) { *o = OIDC{} }, ""},
		"an issuer of no URL": {func(o *OIDC) { o.Issuer = "login.example.org" }, "issuer"},
		"no client":           {func(o *OIDC) { o.ClientID = "" }, "client-id"},
		"no roles":            {func(o *OIDC) { o.Roles = nil }, "roles"},
		"a role alone":        {func(o *OIDC) { o.Roles = []string{"ADMIN"} }, "roles"},
		"another callback":    {func(o *OIDC) { o.RedirectURL = "https://a.example/callback" }, "redirect-url"},
		"a callback":          {func(o *OIDC) { o.RedirectURL = "https://a.example/orrery/api/v1/auth/oidc/callback" }, ""},
	} {
		o := oidcOf("https://login.example.org")
		c.edit(&o)
		problems := o.Problems()
		if c.says == "" && len(problems) > 0 || c.says != "" && (len(problems) != 1 || errs.FieldOf(problems[0]) != c.says) {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestTheCookieOfALoginIsSecureBehindHTTPS(t *testing.T) {
	t.Parallel()
	s, p := providerSite(t, func(c *Config) { c.OIDC.RedirectURL = "https://a.example/orrery/api/v1/auth/oidc/callback" })
	s.as("").do("GET", "/api/v1/auth/oidc", nil).want(200).is("loginUrl", "https://a.example/orrery/api/v1/auth/oidc/login")
	r := s.as("").do("GET", "/api/v1/auth/oidc/login?redirect_uri=/x&code_challenge="+oidclogin.Challenge(verifier), nil).want(302)
	cookie := r.header.Get("Set-Cookie")
	for _, part := range []string{"Path=/orrery/api/v1/auth/oidc;", "HttpOnly", "Secure", "SameSite=Lax", "Max-Age=600"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("%s is not in %s", part, cookie)
		}
	}
	page, _ := url.Parse(r.header.Get("Location"))
	if got := page.Query().Get("redirect_uri"); got != "https://a.example/orrery/api/v1/auth/oidc/callback" || page.Query().Get("code_challenge_method") != "S256" || !strings.HasPrefix(page.String(), p.URL) {
		t.Errorf("the page is %s", page)
	}
}

func TestAGatewayStartsWhenNothingListensAtTheProvider(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := newSite(t, func(c *Config) { c.OIDC = oidcOf("http://" + address) })
	r := s.as("").do("GET", "/api/v1/auth/oidc/login?redirect_uri=/x&code_challenge="+oidclogin.Challenge(verifier), nil).want(302)
	if to := r.header.Get("Location"); !strings.HasPrefix(to, "/x?error=temporarily_unavailable") {
		t.Error(to)
	}
}
