package auth

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

func TestAPasswordHasItsHashAndNoOther(t *testing.T) {
	h := newHasher(1, 1, Cost{})
	hash, err := h.hash(t.Context(), "secret")
	if err != nil || !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") || strings.Contains(hash, "secret") {
		t.Fatalf("%q, %v", hash, err)
	}
	other, err := h.hash(t.Context(), "secret")
	if err != nil || other == hash {
		t.Error("two hashes of one password are the same: there is no salt")
	}
	for password, want := range map[string]bool{"secret": true, "Secret": false, "": false, strings.Repeat("x", maxPassword+1): false} {
		if ok, err := h.verify(t.Context(), password, hash); ok != want || err != nil {
			t.Errorf("%.20q: %v, %v", password, ok, err)
		}
	}
	for _, password := range []string{"", "secret"} {
		if ok, err := h.verify(t.Context(), password, h.dummy()); ok || err != nil {
			t.Errorf("nobody has the password %q: %v, %v", password, ok, err)
		}
	}
}

func TestHashingWaitsForASlot(t *testing.T) {
	h := newHasher(1, 1, Cost{})
	h.slots <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.hash(ctx, "x"); !errs.Is(err, errs.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestSoManyPasswordsWaitForASlotAndNoMore(t *testing.T) {
	h := newHasher(1, 1, Cost{})
	h.slots <- struct{}{}
	waited := make(chan error, 1)
	go func() { waited <- h.acquire(t.Context()) }()
	await.That(t, "one waits", func() string { return await.Unless(len(h.waiting) == 1, "%d wait", len(h.waiting)) })
	if _, err := h.verify(t.Context(), "x", h.dummy()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("one more is told %v", err)
	}
	h.release()
	if err := <-waited; err != nil {
		t.Errorf("who waited is told %v", err)
	}
	if len(h.waiting) != 0 {
		t.Error("who has a slot still counts as waiting")
	}
}

func FuzzParsePHC(f *testing.F) {
	f.Add(newHasher(1, 1, Cost{}).dummy())
	f.Add("$argon2id$v=19$m=1,t=1,p=1$AAAA$AAAA")
	f.Add("$$$$$")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePHC(s)
		if err == nil && (p.memory == 0 || p.memory > 1<<20 || p.time == 0 || p.threads == 0 || len(p.key) == 0) {
			t.Errorf("%q was taken as %+v", s, p)
		}
	})
}

// FuzzOwnToken checks that only tokens signed here are accepted as short tokens of instances.
func FuzzOwnToken(f *testing.F) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &Service{cfg: Config{Now: func() time.Time { return now }}, signer: at(now)}
	issued := account.InstanceCredential{
		Instance: "abc123", Root: strings.Repeat("0", 64), Serial: 3, TokenID: "01j", IssuedAt: now, ExpiresAt: now.Add(account.ShortTokenLife),
	}
	good, err := s.ShortToken(issued, 2)
	if err != nil {
		f.Fatal(err)
	}
	want := account.OwnToken{Instance: "abc123", Generation: 2, Root: issued.Root, Serial: 3, ExpiresAt: issued.ExpiresAt}
	login, err := s.signer.sign(&account.User{Username: "abc123", Role: RoleAdmin, Epoch: 3}, begun())
	if err != nil {
		f.Fatal(err)
	}
	if t, ok := s.shortToken(good); !ok || t.Instance != want.Instance {
		f.Fatalf("%+v is not taken", t)
	}
	head, rest, _ := strings.Cut(good, ".")
	claims, _, _ := strings.Cut(rest, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	for _, seed := range []string{good, login, head + "." + claims + ".", none + "." + claims + ".", "..", "", "a.b.c", good + "=", head + "." + claims + "." + claims} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := s.shortToken(text)
		if ok && (got.Instance != want.Instance || got.Generation != want.Generation || got.Root != want.Root || got.Serial != want.Serial || !got.ExpiresAt.Equal(want.ExpiresAt)) {
			t.Errorf("%q was taken for %+v", text, got)
		}
		if ok && text == login {
			t.Error("a login's token was taken for an instance's")
		}
	})
}

// begun returns a login that started at the tests' time.
func begun() account.Login {
	return account.Login{ID: "login", SignedInAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), Serial: 1}
}

func at(now time.Time) signer {
	keys := &ring{current: keyOf([]byte(strings.Repeat("k", 32))), previous: new(keyOf([]byte(strings.Repeat("p", 32))))}
	return signer{ring: func() *ring { return keys }, now: func() time.Time { return now }, life: func() time.Duration { return SessionTTL }, cache: newTokenCache()}
}

func TestASessionEndsAfterADay(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	token, err := at(start).sign(&account.User{Username: "ann", Role: RoleViewer, Epoch: 7}, begun())
	if err != nil {
		t.Fatal(err)
	}
	c, err := at(start.Add(SessionTTL - time.Second)).parse(token)
	if err != nil || c.Subject != "ann" || c.Role != RoleViewer || c.Epoch != 7 || c.ID == "" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := at(start.Add(SessionTTL)).parse(token); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("after it: %v", err)
	}
	if _, err := at(start.Add(-12 * time.Hour)).parse(token); err != nil {
		t.Errorf("a gateway whose clock is behind refuses it: %v", err)
	}
}

func TestATokenOfSomebodyElseIsRefused(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := at(now)
	key := s.ring().current.secret
	sign := func(method jwt.SigningMethod, key any, c jwt.Claims) string {
		token, err := jwt.NewWithClaims(method, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	good := func() claims {
		return claims{RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: "ann", ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour)),
		}}
	}
	if _, err := s.parse(sign(jwt.SigningMethodHS256, key, good())); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	foreign, audienceless, endless := good(), good(), good()
	foreign.Issuer, audienceless.Audience, endless.ExpiresAt = "other", nil, nil
	valid, err := s.sign(&account.User{Username: "ann", Role: RoleViewer}, begun())
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(valid, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	raised := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(payload), RoleViewer, RoleAdmin, 1)))
	for name, token := range map[string]string{
		"no signature":       sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good()),
		"another algorithm":  sign(jwt.SigningMethodHS512, key, good()),
		"another key":        sign(jwt.SigningMethodHS256, []byte("other"), good()),
		"another issuer":     sign(jwt.SigningMethodHS256, key, foreign),
		"for nobody":         sign(jwt.SigningMethodHS256, key, audienceless),
		"without an end":     sign(jwt.SigningMethodHS256, key, endless),
		"changed":            parts[0] + "." + raised + "." + parts[2],
		"cut":                valid[:len(valid)-4],
		"without its middle": parts[0] + ".." + parts[2],
		"empty":              "",
		"noise":              "a.b.c",
	} {
		if _, err := s.parse(token); !errs.Is(err, errs.Unauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATokenIsGoodWhileItsKeyIs(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	with := func(r *ring) signer {
		return signer{ring: func() *ring { return r }, now: func() time.Time { return now }, life: func() time.Duration { return SessionTTL }, cache: newTokenCache()}
	}
	first, second, third := keyOf([]byte("first")), keyOf([]byte("second")), keyOf([]byte("third"))
	token, err := with(&ring{current: first}).sign(&account.User{Username: "ann"}, begun())
	if err != nil {
		t.Fatal(err)
	}
	nameless := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{RegisteredClaims: jwt.RegisteredClaims{
		Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: "ann", ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour)),
	}})
	old, err := nameless.SignedString(first.secret)
	if err != nil {
		t.Fatal(err)
	}
	nameless.Header["kid"] = second.id
	misnamed, err := nameless.SignedString(first.secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		keys *ring
		good bool
	}{
		{"its key is the only one", &ring{current: first}, true},
		{"its key is the one before", &ring{current: second, previous: &first}, true},
		{"its key was two before", &ring{current: third, previous: &second}, false},
	} {
		for what, token := range map[string]string{"a token": token, "one that names no key": old} {
			if _, err := with(c.keys).parse(token); (err == nil) != c.good {
				t.Errorf("%s, %s: %v", c.name, what, err)
			}
		}
		if _, err := with(c.keys).parse(misnamed); !errs.Is(err, errs.Unauthenticated) {
			t.Errorf("%s, a token that names another key: %v", c.name, err)
		}
	}
}

func TestEveryTokenHasTheSameLength(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		token := randomToken()
		if len(token) != len(tokenPrefix)+tokenDigits || seen[token] {
			t.Fatalf("%q", token)
		}
		seen[token] = true
	}
}

func TestBuiltInRolesAreSubsetsOfAdmin(t *testing.T) {
	admin := Identity{Permissions: builtIn[RoleAdmin]}
	for name, role := range builtIn {
		for _, p := range role {
			if !admin.Can(p) || !Known(p) {
				t.Errorf("%s has %s and ADMIN has not", name, p)
			}
		}
	}
	if admin.Can(ClusterManage) || !Known(ClusterManage) || Known("nobody.knows") {
		t.Error("rights came from nowhere")
	}
}

// ofPrexorCloud are PrexorCloud's permissions, and those of its roles other than ADMIN.
const (
	ofPrexorCloud = `nodes.view nodes.drain nodes.revoke-cert nodes.shutdown groups.view groups.create groups.update groups.delete groups.start
		instances.view instances.stop instances.command instances.delete instances.console players.view players.transfer players.message networks.view networks.create
		networks.update networks.delete templates.view templates.create templates.update templates.delete crashes.view share.invoke share.revoke
		tokens.view tokens.create tokens.revoke users.view users.create users.update users.delete roles.view roles.manage modules.view modules.manage
		catalog.view catalog.manage audit.view system.settings system.logs.view system.shutdown metrics.view events.stream events.view backups.view
		backups.manage backups.restore cluster.view cluster.config.write cluster.manage`
	ofOperator = `nodes.view nodes.drain groups.view groups.create groups.update groups.start networks.view networks.create networks.update
		instances.view instances.stop instances.command instances.console players.view players.transfer players.message templates.view templates.create
		templates.update crashes.view tokens.view modules.view catalog.view metrics.view events.stream events.view share.invoke share.revoke`
	ofViewer = `nodes.view groups.view networks.view instances.view players.view templates.view crashes.view modules.view catalog.view
		metrics.view instances.console events.stream events.view`
	ofDaemonHost = `nodes.view groups.view networks.view instances.view players.view templates.view crashes.view modules.view
		metrics.view instances.console events.stream events.view instances.stop instances.command`
	contentPermissions = " instances.files templates.content groups.env"
)

func TestBuiltInRolesMayWhatTheirNamesMayInPrexorCloudAndWhatIsOurOwn(t *testing.T) {
	for name, want := range map[string]string{
		RoleAdmin:      strings.ReplaceAll(ofPrexorCloud, "cluster.manage", "nodes.update quotas.view quotas.manage instances.files.write"+contentPermissions),
		RoleOperator:   ofOperator + " nodes.update quotas.view instances.files.write" + contentPermissions,
		RoleViewer:     ofViewer + " quotas.view",
		RoleDaemonHost: ofDaemonHost + " quotas.view instances.files",
		RoleNone:       "",
	} {
		got := []string{}
		for _, p := range builtIn[name] {
			got = append(got, string(p))
		}
		wanted := strings.Fields(want)
		slices.Sort(got)
		slices.Sort(wanted)
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(builtIn) != 5 || len(permissions) != len(strings.Fields(ofPrexorCloud))+7 {
		t.Errorf("there are %d roles and %d permissions", len(builtIn), len(permissions))
	}
}

func TestBearer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.StringMatching(`[A-Za-z0-9._~+/=-]{1,40}`).Draw(t, "token")
		if got, ok := bearer("bEaReR " + token); !ok || got != token {
			t.Fatalf("%q became %q, %v", token, got, ok)
		}
	})
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic x", "x"} {
		if _, ok := bearer(header); ok {
			t.Errorf("%q was taken", header)
		}
	}
}
