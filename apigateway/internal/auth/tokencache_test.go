package auth

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// A cached signature check must not outlive the token or its key.
func TestARememberedTokenIsAsGoodAsOneThatIsNot(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	now, keys := start, &ring{current: keyOf([]byte(strings.Repeat("k", 32)))}
	s := signer{ring: func() *ring { return keys }, now: func() time.Time { return now }, life: func() time.Duration { return SessionTTL }, cache: newTokenCache()}
	token, err := s.sign(&account.User{Username: "ann", Role: RoleViewer, Epoch: 7}, begun())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.cache.get(token, keys); ok {
		t.Error("it is remembered before it was checked")
	}
	for range 2 {
		if c, err := s.parse(token); err != nil || c.Subject != "ann" || c.Epoch != 7 {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	if _, ok := s.cache.get(token, keys); !ok {
		t.Error("it is not remembered")
	}
	if _, err := s.parse(token[:len(token)-2] + "AA"); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("with another signature: %v", err)
	}
	now = start.Add(SessionTTL)
	if _, err := s.parse(token); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("after its day: %v", err)
	}
	now, keys = start, &ring{current: keyOf([]byte(strings.Repeat("o", 32)))}
	if _, err := s.parse(token); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("without its key: %v", err)
	}
}

func TestSoManyTokensAreRememberedAndNoMore(t *testing.T) {
	p, keys := newTokenCache(), &ring{}
	for n := range maxCachedTokens + 1 {
		p.put(fmt.Sprint(n), keys, claims{})
	}
	if len(p.by) > maxCachedTokens {
		t.Errorf("%d are remembered", len(p.by))
	}
}
