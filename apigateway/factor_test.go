package apigateway

import (
	"encoding/base32"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth/totp"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// authenticator computes codes like a user's telephone.
type authenticator struct {
	secret []byte
	now    func() time.Time
}

func (a authenticator) code() string { return totp.Code(a.secret, totp.Step(a.now())) }

// enrol gives the user of s a second factor, and returns its authenticator and recovery codes. The
// code of the present step is used up.
func (s *site) enrol(password string, now func() time.Time) (a authenticator, recovery []string) {
	s.t.Helper()
	begun := s.do("POST", "/api/v1/auth/second-factor", map[string]string{"currentPassword": password}).want(200)
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(fmt.Sprint(begun.field("secret")))
	if err != nil {
		s.t.Fatal(err)
	}
	a = authenticator{secret, now}
	list, _ := s.do("POST", "/api/v1/auth/second-factor/confirm", map[string]string{"code": a.code()}).want(200).field("recoveryCodes").([]any)
	for _, one := range list {
		recovery = append(recovery, fmt.Sprint(one))
	}
	return a, recovery
}

// triesCode sends a login with a code.
func triesCode(s *site, user, password, code string) *reply {
	return s.as("").do("POST", "/api/v1/auth/login", map[string]string{"username": user, "password": password, "code": code})
}

// clocked returns a gateway with an adjustable clock, its time, and a user vera with a login.
func clocked(t *testing.T) (s, vera *site, now func() time.Time, wait func(time.Duration)) {
	t.Helper()
	s, wait = ahead(t)
	return s, s.user("vera", "VIEWER"), s.gateway.cfg.Now, wait
}

func TestASecondFactorIsEnrolledConfirmedAskedForAndDisabled(t *testing.T) {
	t.Parallel()
	s, vera, now, wait := clocked(t)
	vera.do("GET", "/api/v1/auth/second-factor", nil).want(200).is("enabled", false).is("enabledAt", nil)
	vera.do("POST", "/api/v1/auth/second-factor", `{}`).want(422).naming("currentPassword")
	vera.do("POST", "/api/v1/auth/second-factor", `{"currentPassword":"wrong"}`).want(403).naming("password is wrong")
	vera.do("POST", "/api/v1/auth/second-factor/confirm", `{"code":"123456"}`).want(409).naming("begin one")

	begun := vera.do("POST", "/api/v1/auth/second-factor", map[string]string{"currentPassword": adminPassword}).want(200)
	uri, err := url.Parse(fmt.Sprint(begun.field("uri")))
	if err != nil || uri.Scheme != "otpauth" || uri.Query().Get("secret") != begun.field("secret") || uri.Path != "/Orrery:vera" {
		t.Errorf("%v, %v", uri, err)
	}
	vera.do("POST", "/api/v1/auth/second-factor/confirm", `{"code":"nonsense"}`).want(422).naming("code")
	tries(s.as(""), "vera", adminPassword).want(200) // needs no code before the confirmation
	vera.do("GET", "/api/v1/auth/me", nil).want(200).is("secondFactor", false)

	phone, recovery := vera.enrol(adminPassword, now)
	if len(recovery) != totp.RecoveryCodes {
		t.Fatalf("recovery codes %q", recovery)
	}
	vera.do("POST", "/api/v1/auth/second-factor", map[string]string{"currentPassword": adminPassword}).want(409).naming("disable it first")
	vera.do("GET", "/api/v1/auth/me", nil).want(200).is("secondFactor", true)
	vera.do("GET", "/api/v1/auth/second-factor", nil).want(200).is("enabled", true).is("recoveryCodesLeft", totp.RecoveryCodes)

	tries(s.as(""), "vera", adminPassword).want(401).is("error.code", "SECOND_FACTOR_REQUIRED").naming("recovery code")
	tries(s.as(""), "vera", "wrong").want(401).is("error.code", "UNAUTHORIZED")
	triesCode(s, "vera", "wrong", phone.code()).want(401).is("error.code", "UNAUTHORIZED")
	triesCode(s, "vera", adminPassword, phone.code()).want(401).is("error.code", "SECOND_FACTOR_WRONG") // used by the confirmation
	wait(totp.Period)
	triesCode(s, "vera", adminPassword, phone.code()).want(200).is("user.secondFactor", true)
	triesCode(s, "vera", adminPassword, phone.code()).want(401).is("error.code", "SECOND_FACTOR_WRONG").naming("used before")
	triesCode(s, "vera", adminPassword, recovery[0]).want(200)
	triesCode(s, "vera", adminPassword, recovery[0]).want(401).is("error.code", "SECOND_FACTOR_WRONG")
	triesCode(s, "vera", adminPassword, strings.ToLower(recovery[1])).want(200)
	vera.do("GET", "/api/v1/auth/second-factor", nil).want(200).is("recoveryCodesLeft", totp.RecoveryCodes-2)
	s.do("GET", "/api/v1/audit?action=auth.recovery-code", nil).want(200).is("total", 2).is("data.0.class", "LOGIN").is("data.0.username", "vera")

	wait(totp.Period)
	vera.do("POST", "/api/v1/auth/second-factor/disable", `{"code":"AAAA-AAAA-AAAA-AAAA"}`).want(403).is("error.code", "SECOND_FACTOR_WRONG")
	vera.do("POST", "/api/v1/auth/second-factor/disable", map[string]string{"code": phone.code()}).want(200)
	vera.do("POST", "/api/v1/auth/second-factor/disable", map[string]string{"code": phone.code()}).want(404)
	tries(s.as(""), "vera", adminPassword).want(200)
	for _, action := range []string{"begin", "enable", "disable"} {
		if r := s.do("GET", "/api/v1/audit?action=user.second-factor."+action, nil).want(200); len(r.data()) == 0 || strings.Contains(r.raw, fmt.Sprint(begun.field("secret"))) {
			t.Errorf("%s: %s", action, r.raw)
		}
	}
}

func TestAnEnrolmentIsConfirmedWithinAQuarterOfAnHour(t *testing.T) {
	t.Parallel()
	_, vera, now, wait := clocked(t)
	begun := vera.do("POST", "/api/v1/auth/second-factor", map[string]string{"currentPassword": adminPassword}).want(200)
	secret, _ := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(fmt.Sprint(begun.field("secret")))
	wait(totp.EnrolTime)
	vera.do("POST", "/api/v1/auth/second-factor/confirm", map[string]string{"code": authenticator{secret, now}.code()}).want(409).naming("begin one")
	vera.enrol(adminPassword, now)
}

func TestOfManyLoginsWithOneCodeOneSucceeds(t *testing.T) {
	t.Parallel()
	s, vera, now, wait := clocked(t)
	b := newSiteOn(t, s.etcd, func(c *Config) { c.Now = now })
	phone, recovery := vera.enrol(adminPassword, now)
	wait(totp.Period)
	for _, code := range []string{phone.code(), recovery[3]} {
		var all sync.WaitGroup
		statuses := make([]int, 4)
		for n := range statuses {
			all.Go(func() { statuses[n] = triesCode([]*site{s, b}[n%2], "vera", adminPassword, code).status })
		}
		all.Wait()
		good := 0
		for _, status := range statuses {
			if status == 200 {
				good++
			}
		}
		if good != 1 {
			t.Errorf("of logins with one code, %v", statuses)
		}
		s.do("PATCH", "/api/v1/users/vera", map[string]string{"password": adminPassword}).want(200) // forgets the failures
	}
}

func TestWrongCodesCountLikeWrongPasswordsAndMissingOnesDoNot(t *testing.T) {
	t.Parallel()
	s, vera, now, wait := clocked(t)
	phone, _ := vera.enrol(adminPassword, now)
	wait(totp.Period)
	for range 10 { // a missing code neither counts nor forgets what counted
		tries(s.as(""), "vera", adminPassword).want(401).is("error.code", "SECOND_FACTOR_REQUIRED")
	}
	for range 5 {
		triesCode(s, "vera", adminPassword, "nonsense").want(401).is("error.code", "SECOND_FACTOR_WRONG")
		if s.view.Snapshot().Lockouts.Len() != 1 {
			t.Error("a wrong code is not counted")
		}
	}
	triesCode(s, "vera", adminPassword, phone.code()).want(429).is("error.code", "ACCOUNT_LOCKED")
	tries(s.as(""), "vera", adminPassword).want(429) // does not tell whether the password is right
	s.do("GET", "/api/v1/audit?action=auth.login-failed", nil).want(200).is("total", 1).naming("a wrong code of the second factor")
	wait(15 * time.Minute)
	triesCode(s, "vera", adminPassword, phone.code()).want(200)
}

func TestAnAdministratorRemovesTheFactorOfAnotherUser(t *testing.T) {
	t.Parallel()
	s, vera, now, _ := clocked(t)
	vera.enrol(adminPassword, now)
	s.enrol(adminPassword, now)
	s.user("rob", "OPERATOR").do("DELETE", "/api/v1/users/vera/second-factor", nil).want(403)
	s.without("clerk", "system.settings").do("DELETE", "/api/v1/users/admin/second-factor", nil).want(403) // a user with more permissions
	s.do("DELETE", "/api/v1/users/nobody/second-factor", nil).want(404)
	s.do("DELETE", "/api/v1/users/vera/second-factor", nil).want(204)
	s.do("DELETE", "/api/v1/users/vera/second-factor", nil).want(404).naming("no second factor")
	tries(s.as(""), "vera", adminPassword).want(200)
	s.do("GET", "/api/v1/audit?action=user.second-factor.remove", nil).want(200).is("total", 1).is("data.0.username", "admin").is("data.0.resourceId", "vera")
}

func TestAPITokensNeedNoCodeAndChangeNoFactor(t *testing.T) {
	t.Parallel()
	_, vera, now, _ := clocked(t)
	admin := vera.as("").login("admin", adminPassword)
	program, _ := vera.as(admin).key(`{"name":"ci"}`)
	phone, _ := vera.as(admin).enrol(adminPassword, now)
	program.do("GET", "/api/v1/auth/me", nil).want(200).is("secondFactor", true)
	program.do("POST", "/api/v1/auth/second-factor", map[string]string{"currentPassword": adminPassword}).want(403)
	program.do("POST", "/api/v1/auth/second-factor/confirm", map[string]string{"code": phone.code()}).want(403)
	program.do("POST", "/api/v1/auth/second-factor/disable", map[string]string{"code": phone.code()}).want(403)
}

func TestAFactorStaysWithItsUserAndIsSealed(t *testing.T) {
	t.Parallel()
	s, vera, now, wait := clocked(t)
	phone, recovery := vera.enrol(adminPassword, now)
	user, _ := s.view.Snapshot().Users.Get("vera")
	f, err := store.Get(t.Context(), s.store, keys.Factor(user.ID()))
	if err != nil || strings.Contains(string(f.Sealed), string(phone.secret)) || len(f.Recovery) != len(recovery) {
		t.Fatalf("%+v, %v", f, err)
	}
	for _, code := range recovery {
		if strings.Contains(strings.Join(f.Recovery, " "), code) {
			t.Errorf("the recovery code %s is stored", code)
		}
	}
	s.do("PATCH", "/api/v1/users/vera", `{"username":"wera"}`).want(200)
	wait(totp.Period)
	triesCode(s, "wera", adminPassword, phone.code()).want(200)
	s.do("PATCH", "/api/v1/users/wera", `{"password":"battery staple"}`).want(200)
	tries(s.as(""), "wera", "battery staple").want(401).is("error.code", "SECOND_FACTOR_REQUIRED")

	other := s.user("bob", "VIEWER") // a sealed secret is good for its user only
	other.enrol(adminPassword, now)
	bob, _ := s.view.Snapshot().Users.Get("bob")
	taken, _ := store.Get(t.Context(), s.store, keys.Factor(bob.ID()))
	s.commit(store.Replace(keys.Factor(bob.ID()), account.Factor{Sealed: f.Sealed, ConfirmedAt: f.ConfirmedAt}, taken.ModRev))
	wait(totp.Period)
	triesCode(s, "bob", adminPassword, phone.code()).want(500)

	s.do("DELETE", "/api/v1/users/wera", nil).want(204)
	if _, ok := s.view.Snapshot().Factors.Get(user.ID()); ok {
		t.Error("a deleted user leaves a factor")
	}
}

// The stock client of PrexorCloud reads error.code and error.message of a refused login.
func TestTheStockClientIsToldThatACodeIsNeeded(t *testing.T) {
	t.Parallel()
	s, vera, now, wait := clocked(t)
	phone, _ := vera.enrol(adminPassword, now)
	login := func(body string) *reply {
		return s.as("").do("POST", "/api/v1/auth/login", body, append([]string{"Content-Type", "application/json"}, stock...)...)
	}
	login(`{"password":"` + adminPassword + `","username":"admin"}`).want(200)
	login(`{"password":"`+adminPassword+`","username":"vera"}`).want(401).is("error.status", 401).naming("second factor")
	wait(totp.Period)
	login(`{"code":"` + phone.code() + `","password":"` + adminPassword + `","username":"vera"}`).want(200)
}

func TestARightPasswordDoesNotEndTheCountOfWrongCodes(t *testing.T) {
	_, vera, now, wait := clocked(t)
	vera.enrol(adminPassword, now)
	wait(totp.Period)
	for n := range 5 {
		vera.do("POST", "/api/v1/auth/second-factor/disable", `{"code":"AAAA-AAAA-AAAA-AAAA"}`)
		if n == 3 {
			vera.do("POST", "/api/v1/auth/second-factor", map[string]string{"currentPassword": adminPassword})
		}
	}
	if r := vera.do("POST", "/api/v1/auth/second-factor/disable", `{"code":"AAAA-AAAA-AAAA-AAAA"}`); r.status != http.StatusTooManyRequests {
		t.Errorf("after five wrong codes: %d %s, want 429", r.status, r.body)
	}
}

func TestNobodyRemovesTheirOwnFactorWithoutACode(t *testing.T) {
	_, vera, now, _ := clocked(t)
	admin := vera.as("").login("admin", adminPassword)
	program, _ := vera.as(admin).key(`{"name":"ci"}`)
	vera.as(admin).enrol(adminPassword, now)
	for name, s := range map[string]*site{"an API token": program, "the login": vera.as(admin)} {
		if r := s.do("DELETE", "/api/v1/users/admin/second-factor", nil); r.status != http.StatusForbidden {
			t.Errorf("with %s: %d %s, want 403", name, r.status, r.body)
		}
	}
}
