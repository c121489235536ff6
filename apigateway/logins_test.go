package apigateway

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// ahead returns a gateway with an adjustable clock.
func ahead(t *testing.T) (*site, func(time.Duration)) {
	t.Helper()
	var by atomic.Int64
	s := newSite(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(by.Load())) } })
	return s, func(d time.Duration) { by.Add(int64(d)) }
}

// refresh sends only a refresh token.
func (s *site) refresh(token any) *reply {
	s.t.Helper()
	return s.as("").do("POST", "/api/v1/auth/refresh", map[string]any{"refreshToken": token})
}

func TestARefreshTokenIsReplacedRepeatedForAMinuteAndThenEndsItsLogin(t *testing.T) {
	t.Parallel()
	s, wait := ahead(t)
	b := second(t, s)
	first := tries(s.as(""), "admin", adminPassword).want(200)
	next := s.refresh(first.field("refreshToken")).want(200)
	if next.field("refreshToken") == first.field("refreshToken") || next.field("loginExpiresAt") != first.field("loginExpiresAt") {
		t.Errorf("%s was followed by %s", first.raw, next.raw)
	}
	s.as(fmt.Sprint(first.field("token"))).do("GET", "/api/v1/auth/me", nil).want(200) // valid until it expires
	b.refresh(first.field("refreshToken")).want(200).is("refreshToken", next.field("refreshToken"))
	wait(59 * time.Second)
	s.refresh(first.field("refreshToken")).want(200).is("refreshToken", next.field("refreshToken"))
	wait(2 * time.Second)
	s.refresh(first.field("refreshToken")).want(401).naming("replaced earlier")
	s.refresh(next.field("refreshToken")).want(401)
	for _, r := range []*reply{first, next} {
		s.as(fmt.Sprint(r.field("token"))).do("GET", "/api/v1/auth/me", nil).want(401)
	}
	s.do("GET", "/api/v1/audit?action=auth.refresh-reused", nil).want(200).is("total", 1).is("data.0.username", "admin").is("data.0.class", "LOGIN")

	again := tries(s.as(""), "admin", adminPassword).want(200)
	second := s.refresh(again.field("refreshToken")).want(200)
	s.refresh(second.field("refreshToken")).want(200)
	s.refresh(again.field("refreshToken")).want(401) // two refreshes old: rejected at any time
	for _, other := range []any{"", "x", again.field("token"), strings.Repeat("a.", 2) + "a"} {
		s.refresh(other).want(401)
	}
	s.as(fmt.Sprint(again.field("refreshToken"))).do("GET", "/api/v1/auth/me", nil).want(401)
}

func TestOfManyRefreshesAtOnceAllGetTheSameSuccessor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token := tries(s.as(""), "admin", adminPassword).want(200).field("refreshToken")
	var all sync.WaitGroup
	got := make([]*reply, 8)
	for n := range got {
		all.Go(func() { got[n] = s.refresh(token) })
	}
	all.Wait()
	for _, r := range got {
		r.want(200).is("refreshToken", got[0].field("refreshToken"))
	}
}

func TestALoginEndsThirtyDaysAfterTheSignInHoweverItIsRefreshed(t *testing.T) {
	t.Parallel()
	s, wait := ahead(t)
	by := tries(s.as(""), "admin", adminPassword).want(200)
	older := s.as(fmt.Sprint(by.field("token")))
	for range 31 {
		wait(23 * time.Hour)
		by = s.refresh(by.field("refreshToken")).want(200)
		older = s.as(fmt.Sprint(older.do("POST", "/api/v1/auth/refresh", nil).want(200).is("refreshToken", nil).field("token")))
	}
	wait(30*24*time.Hour - 31*23*time.Hour - time.Hour)
	by = s.refresh(by.field("refreshToken")).want(200)
	older = s.as(fmt.Sprint(older.do("POST", "/api/v1/auth/refresh", nil).want(200).field("token")))
	if left, _ := by.field("expiresInSeconds").(float64); left > 3600 || left < 3000 {
		t.Errorf("an hour before the end a token is good for %v s", left)
	}
	wait(time.Hour + time.Second)
	s.refresh(by.field("refreshToken")).want(401)
	older.do("POST", "/api/v1/auth/refresh", nil).want(401)
	s.as(fmt.Sprint(by.field("token"))).do("GET", "/api/v1/auth/me", nil).want(401)
}

// Tokens of earlier versions have no sign-in time, and their logins have no record.
func TestALoginOfAnEarlierVersionEndsThirtyDaysAfterTheUpgrade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	key, err := store.Get(t.Context(), s.store, keys.SealedKey("jwt"))
	if err != nil || key.LoginsSince.IsZero() {
		t.Fatalf("%+v, %v", key, err)
	}
	old := key
	old.LoginsSince = time.Time{}
	s.commit(store.Replace(keys.SealedKey("jwt"), old, key.ModRev))
	upgraded := newSiteOn(t, s.etcd)
	if key, _ = store.Get(t.Context(), s.store, keys.SealedKey("jwt")); key.LoginsSince.IsZero() {
		t.Fatal("a gateway that starts does not date earlier logins")
	}
	box := seal.NewBox(secret, "jwt")
	opened, err := box.Open(key.Sealed)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "orrery", "aud": "orrery-api", "sub": "admin", "jti": "earlier", "role": "ADMIN", "epoch": 1,
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(opened)
	if err != nil {
		t.Fatal(err)
	}
	earlier := upgraded.as(token)
	ends := key.LoginsSince.Add(account.LoginLife).Format(time.RFC3339Nano)
	earlier.do("POST", "/api/v1/auth/refresh", nil).want(200).is("loginExpiresAt", ends).is("refreshToken", nil)
	earlier.do("GET", "/api/v1/users/admin/sessions", nil).want(200).is("data.0.id", "earlier").is("data.0.expiresAt", ends).is("data.0.current", true)
	earlier.do("DELETE", "/api/v1/users/admin/sessions/earlier", nil).want(204)
	earlier.do("GET", "/api/v1/auth/me", nil).want(401)
}

func TestUsersListAndEndTheirSessions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	vera := s.user("vera", "VIEWER")
	phone := s.as(s.login("vera", adminPassword))
	list := vera.do("GET", "/api/v1/users/vera/sessions", nil, "User-Agent", "browser").want(200).is("total", 2).
		is("data.0.current", false).is("data.1.current", true).is("data.0.ipAddress", "127.0.0.1").is("data.0.refreshedAt", nil)
	other := "/api/v1/users/vera/sessions/" + fmt.Sprint(list.field("data.0.id"))
	s.user("bob", "VIEWER").do("GET", "/api/v1/users/vera/sessions", nil).want(403)
	s.user("rob", "OPERATOR").do("DELETE", other, nil).want(403)
	vera.do("DELETE", "/api/v1/users/vera/sessions/nobody", nil).want(404)
	vera.do("DELETE", other, nil).want(204)
	vera.do("DELETE", other, nil).want(404)
	phone.do("GET", "/api/v1/auth/me", nil).want(401)
	vera.do("GET", "/api/v1/users/vera/sessions", nil).want(200).is("total", 1)
	s.do("GET", "/api/v1/users/vera/sessions", nil).want(200).is("total", 1).is("data.0.current", false)
	phone = s.as(s.login("vera", adminPassword))
	vera.do("DELETE", "/api/v1/users/vera/sessions", nil).want(204)
	for _, ended := range []*site{vera, phone} {
		ended.do("GET", "/api/v1/auth/me", nil).want(401)
	}
	clerk := s.without("clerk", auth.SystemSettings)
	clerk.do("DELETE", "/api/v1/users/admin/sessions", nil).want(403) // a user with more permissions
}

func TestOneUserHasSoManySessionsAndTheLeastRecentlyUsedMakesRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.user("vera", "VIEWER")
	vera, _ := s.view.Snapshot().Users.Get("vera")
	first := tries(s.as(""), "vera", adminPassword).want(200)
	for n := range account.MaxLogins + 3 {
		l := s.gateway.auth.NewLogin(vera)
		if err := s.gateway.operate.SignIn(t.Context(), txn.Actor{IP: fmt.Sprint("203.0.113.", n)}, vera, l); err != nil {
			t.Fatal(err)
		}
	}
	s.do("GET", "/api/v1/users/vera/sessions", nil).want(200).is("total", account.MaxLogins)
	s.refresh(first.field("refreshToken")).want(401)
	older := s.as(fmt.Sprint(first.field("token")))
	older.do("GET", "/api/v1/auth/me", nil).want(200) // its token stays valid
	older.do("POST", "/api/v1/auth/refresh", nil).want(200)
	older.do("GET", "/api/v1/users/vera/sessions", nil).want(200).is("total", account.MaxLogins)
	if known, _ := s.view.Snapshot().KnownNetworks.Get(vera.ID()); len(known.Networks) != account.MaxKnownNetworks {
		t.Errorf("%d networks are known", len(known.Networks))
	}
}

func TestAnotherPasswordEndsAPITokensIfAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	vera := s.user("vera", "ADMIN")
	ci, _ := vera.key(`{"name":"ci"}`)
	mine, _ := s.key(`{"name":"mine"}`)
	first := vera.do("POST", "/api/v1/auth/change-password", map[string]any{"currentPassword": adminPassword, "newPassword": "battery staple"}).want(200).is("status", "ok")
	ci.do("GET", "/api/v1/auth/me", nil).want(200)
	s.refresh(first.field("refreshToken")).want(200)
	vera = s.as(fmt.Sprint(first.field("token")))
	vera.do("PATCH", "/api/v1/users/vera", `{"endApiTokens":true}`).want(422).naming("endApiTokens")
	vera.do("POST", "/api/v1/auth/change-password", map[string]any{"currentPassword": "battery staple", "newPassword": "correct horse", "endApiTokens": true}).want(200)
	ci.do("GET", "/api/v1/auth/me", nil).want(401)
	mine.do("GET", "/api/v1/auth/me", nil).want(200)
	s.refresh(first.field("refreshToken")).want(401)
	vera = s.as(s.login("vera", "correct horse"))
	ci, _ = vera.key(`{"name":"ci"}`)
	s.do("PATCH", "/api/v1/users/vera", `{"password":"battery staple","endApiTokens":true}`).want(200)
	ci.do("GET", "/api/v1/auth/me", nil).want(401)
}

func TestAnAPITokenIsGoodForAYearUnlessItsMakerSaysOtherwise(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, made := s.key(`{"name":"a"}`)
	at, err := time.Parse(time.RFC3339, fmt.Sprint(made.field("expiresAt")))
	if left := time.Until(at); err != nil || left < 364*24*time.Hour || left > 366*24*time.Hour {
		t.Errorf("it expires at %v, %v", at, err)
	}
	_, made = s.key(`{"name":"b","expiresInSeconds":0}`)
	made.is("expiresAt", nil)
}
