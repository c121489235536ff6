package apigateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// refreshed returns the caller with a new token of the same login.
func refreshed(s *site) *site {
	s.t.Helper()
	return s.as(fmt.Sprint(s.do("POST", "/api/v1/auth/refresh", nil).want(200).field("token")))
}

func TestALogoutEndsAllTokensOfItsLoginOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	bob := a.user("bob", "VIEWER")
	again := refreshed(bob)
	eventually(t, b.as(again.token), "GET", "/api/v1/groups", 200) // wait until b knows bob
	there := refreshed(b.as(again.token))
	other := a.as(a.login("bob", adminPassword))
	again.do("POST", "/api/v1/auth/logout", nil).want(200)
	for name, s := range map[string]*site{"the first token": bob, "the one in the middle": again, "the last one": a.as(there.token)} {
		if got := s.do("GET", "/api/v1/groups", nil); got.status != 401 {
			t.Errorf("%s: %s", name, got.raw)
		}
		eventually(t, b.as(s.token), "GET", "/api/v1/groups", 401)
	}
	newSiteOn(t, a.etcd).as(there.token).do("GET", "/api/v1/groups", nil).want(401)
	other.do("GET", "/api/v1/groups", nil).want(200)
	a.as(a.login("bob", adminPassword)).do("GET", "/api/v1/groups", nil).want(200)
}

func TestLogoutsOfOneHourShareALeaseThatOutlivesTheirTokens(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 3 {
		s.as(s.login("admin", adminPassword)).do("POST", "/api/v1/auth/logout", nil).want(200)
	}
	raw, leases := s.etcd.Raw(), map[int64]bool{}
	for id := range s.view.Snapshot().Revocations.All() {
		got, err := raw.Get(t.Context(), keys.Revocation(id).String())
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		leases[got.Kvs[0].Lease] = true
	}
	all, err := raw.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, l := range all.Leases {
		left, err := raw.TimeToLive(t.Context(), l.ID)
		if err != nil {
			t.Fatal(err)
		}
		if granted := time.Duration(left.GrantedTTL) * time.Second; granted > 25*time.Hour && granted < 27*time.Hour {
			long++
		}
	}
	if n := s.view.Snapshot().Revocations.Len(); n != 3 || len(leases) != 1 || long != 1 {
		t.Errorf("%d ended logins are on %d leases, of %d that last so long: want 3 on 1 of 1", n, len(leases), long)
	}
}

func TestOneLogoutTooManyEndsAllLoginsOfItsUserAndIsKeptNoMore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	bob := s.user("bob", "VIEWER")
	other := s.as(s.login("bob", adminPassword))
	var writes []store.Write
	for n := range 64 {
		writes = append(writes, store.Create(keys.Revocation(fmt.Sprintf("login%d", n)), account.Revocation{User: "bob", At: time.Now()}))
	}
	s.commit(writes...)
	s.commit(store.Create(keys.Revocation("another"), account.Revocation{User: "somebody", At: time.Now()}))
	bob.do("POST", "/api/v1/auth/logout", nil).want(200)
	bob.do("GET", "/api/v1/groups", nil).want(401)
	other.do("GET", "/api/v1/groups", nil).want(401)
	if n := s.view.Snapshot().Revocations.Len(); n != 1 {
		t.Errorf("%d ended logins are kept, want only the other user's", n)
	}
	s.do("GET", "/api/v1/groups", nil).want(200)
	s.as(s.login("bob", adminPassword)).do("GET", "/api/v1/groups", nil).want(200)
}
