package apigateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
)

// tries sends a login.
func tries(s *site, user, password string) *reply {
	return s.do("POST", "/api/v1/auth/login", map[string]string{"username": user, "password": password})
}

func TestFiveWrongPasswordsLockANameOutOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	for _, name := range []string{"admin", "nobody"} {
		for n := range 5 {
			tries([]*site{a, b}[n%2], strings.ToUpper(name), "wrong").want(401).is("error.code", "UNAUTHORIZED")
		}
		for what, s := range map[string]*site{"here": a, "there": b, "after a start": newSiteOn(t, a.etcd)} {
			await.That(t, name+" is locked out "+what, func() string {
				got := tries(s, name, adminPassword)
				return await.Unless(got.status == 429, "%s", got.raw)
			})
			r := tries(s, name, adminPassword).want(429).is("error.code", "ACCOUNT_LOCKED")
			until, err := time.Parse(time.RFC3339, fmt.Sprint(r.field("lockedUntil")))
			if err != nil || r.field("message") != r.field("error.message") || r.header.Get("Retry-After") == "" || until.Before(time.Now()) {
				t.Errorf("%v %s", r.header, r.raw)
			}
		}
	}
	a.do("POST", "/api/v1/auth/change-password", map[string]string{"currentPassword": adminPassword, "newPassword": "correct horse"}).want(429)
	var locks []string
	for _, e := range a.do("GET", "/api/v1/audit", nil).want(200).field("data").([]any) {
		if e := e.(map[string]any); e["action"] == "auth.lockout" {
			locks = append(locks, fmt.Sprint(e["resourceId"]))
		}
	}
	if len(locks) != 2 || !strings.HasPrefix(locks[0], "unknown-") || locks[1] != "admin" {
		t.Errorf("the audit has the locks of %q", locks)
	}
}

func TestPasswordChangeAndDeletionEndLockout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	vera := map[string]string{"username": "vera", "password": "correct horse", "role": "VIEWER"}
	s.do("POST", "/api/v1/users", vera).want(201)
	lock := func() {
		t.Helper()
		for range 5 {
			tries(s, "vera", "wrong").want(401)
		}
		tries(s, "vera", "wrong").want(429)
	}
	lock()
	s.do("PATCH", "/api/v1/users/vera", `{"password":"battery staple"}`).want(200)
	tries(s, "vera", "battery staple").want(200)
	lock()
	s.do("DELETE", "/api/v1/users/vera", nil).want(204)
	s.do("POST", "/api/v1/users", vera).want(201)
	tries(s, "vera", "correct horse").want(200)
}

func TestARightPasswordForgetsTheWrongOnesAndALockEndsByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Lockout = Lockout{Failures: 3, Duration: time.Second} })
	for range 3 {
		tries(s, "admin", "wrong").want(401)
		tries(s, "admin", "wrong").want(401)
		tries(s, "admin", adminPassword).want(200)
	}
	if n := s.view.Snapshot().Lockouts.Len(); n != 0 {
		t.Errorf("the failures of %d names are kept", n)
	}
	for range 3 {
		tries(s, "admin", "wrong").want(401)
	}
	await.That(t, "the lock has ended", func() string {
		got := tries(s, "admin", adminPassword)
		return await.Unless(got.status == 200, "%s", got.raw)
	})
}

func TestOfManyPasswordsAtOnceThatLockANameOutNoneIsCountedTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var all sync.WaitGroup
	var wrong, locked atomic.Int32
	for range 20 {
		all.Go(func() {
			switch got := tries(s, "admin", "wrong"); got.status {
			case 401:
				wrong.Add(1)
			case 429:
				locked.Add(1)
			default:
				t.Errorf("%d %s", got.status, got.raw)
			}
		})
	}
	all.Wait()
	if wrong.Load() != 5 || locked.Load() != 15 { // a right password is answered 429 while locked, so a wrong one must be too
		t.Errorf("%d answers say that the password is wrong, %d that the name is locked out", wrong.Load(), locked.Load())
	}
	tries(s, "admin", adminPassword).want(429)
	if got := s.do("GET", "/api/v1/audit", nil).want(200).raw; strings.Count(got, "auth.lockout") != 1 {
		t.Errorf("the audit has %s", got)
	}
}

func TestWithoutALockoutNothingIsCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Lockout.Failures = -1 })
	for range 6 {
		tries(s, "admin", "wrong").want(401)
	}
	tries(s, "admin", adminPassword).want(200)
	if n := s.view.Snapshot().Lockouts.Len(); n != 0 {
		t.Errorf("the failures of %d names are counted", n)
	}
	s.do("GET", "/api/v1/audit?action=auth.login-failed", nil).want(200).is("total", 1)
}

// from tries a password from an address that a trusted proxy reports.
func from(s *site, address, user, password string) *reply {
	return s.as("").do("POST", "/api/v1/auth/login", map[string]string{"username": user, "password": password}, "X-Forwarded-For", address)
}

func TestAStrangerLocksOutTheirOwnNetworkAndNotAnAdministratorAtAKnownAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.BehindProxy = []string{"127.0.0.1/32"} })
	const home, cafe = "198.51.100.7", "198.51.100.8"
	from(s, home, "admin", adminPassword).want(200)
	for range 5 {
		from(s, "203.0.113.1", "admin", "wrong").want(401)
	}
	from(s, "203.0.113.1", "admin", adminPassword).want(429)
	from(s, home, "admin", adminPassword).want(200)
	from(s, cafe, "admin", adminPassword).want(200) // too few to lock other networks
	for n := range 15 {
		from(s, fmt.Sprint("203.0.113.", 10+n), "admin", "wrong").want(401)
	}
	from(s, "192.0.2.1", "admin", adminPassword).want(429) // many networks lock out all unknown ones
	for _, known := range []string{home, cafe, "::ffff:" + home} {
		from(s, known, "admin", adminPassword).want(200)
	}
	for range 5 {
		from(s, home, "admin", "wrong").want(401)
	}
	from(s, home, "admin", adminPassword).want(429).is("error.code", "ACCOUNT_LOCKED")
	from(s, cafe, "admin", adminPassword).want(200)
}

func TestEachWrongPasswordDelaysTheNextOneByTwoSecondsAtMost(t *testing.T) {
	t.Parallel()
	var waited []time.Duration
	s := newSite(t, func(c *Config) {
		c.BehindProxy = []string{"127.0.0.1/32"}
		c.pause = func(_ context.Context, d time.Duration) bool {
			waited = append(waited, d)
			return true
		}
	})
	for n := range 8 {
		from(s, fmt.Sprint("203.0.113.", n), "admin", "wrong").want(401)
	}
	ms := time.Millisecond
	if want := []time.Duration{125 * ms, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms, 2000 * ms}; !slices.Equal(waited, want) {
		t.Errorf("passwords waited %v, want %v", waited, want)
	}
}

func TestOfIPv6ThePrefixOfAHostIsLockedOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.BehindProxy = []string{"127.0.0.1/32"} })
	for n := range 5 {
		from(s, fmt.Sprint("2001:db8:1:2::", n+1), "admin", "wrong").want(401)
	}
	from(s, "2001:db8:1:2:ffff::1", "admin", adminPassword).want(429)
	from(s, "2001:db8:1:3::1", "admin", adminPassword).want(200)
}
