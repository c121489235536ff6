package ratelimit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// limiter returns a Limiter with a window of a minute.
func limiter(limit func() int, now func() time.Time, replicas func() int) *Limiter[string] {
	return New[string](Config{Limit: limit, Window: time.Minute, Now: now, Replicas: replicas})
}

// over counts a request and reports whether it is above the limit.
func (l *Limiter[K]) over(caller K) bool {
	_, ok := l.Allow(caller)
	return !ok
}

func always(limit int) func() int { return func() int { return limit } }

func TestALimitThatChangesHoldsFromThenOn(t *testing.T) {
	limit := 1
	l := limiter(func() int { return limit }, func() time.Time { return time.Unix(0, 0) }, nil)
	var got []bool
	for _, limit = range []int{1, 1, 3, 0, 2} {
		got = append(got, !l.over("10.0.0.1"))
	}
	if want := []bool{true, false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestALimitCountsPerCallerAndWindow(t *testing.T) {
	now := time.Unix(0, 0)
	l := limiter(always(3), func() time.Time { return now }, nil)
	for n := range 3 {
		if l.over("10.0.0.1") {
			t.Fatalf("request %d was refused", n+1)
		}
	}
	now = now.Add(20 * time.Second)
	if wait, ok := l.Allow("10.0.0.1"); ok || wait != 40*time.Second {
		t.Errorf("the fourth: %v, %v", wait, ok)
	}
	if l.over("10.0.0.2") {
		t.Error("another caller was refused")
	}
	now = now.Add(40 * time.Second)
	if l.over("10.0.0.1") {
		t.Error("a new window counts the old one's requests")
	}
}

func TestReplicasTogetherAllowTheLimitAndLessThanOneMoreEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, replicas := rapid.IntRange(1, 50).Draw(t, "limit"), rapid.IntRange(1, 9).Draw(t, "replicas")
		allowed := 0
		for range replicas {
			l := limiter(always(limit), func() time.Time { return time.Unix(0, 0) }, func() int { return replicas })
			for range limit + 1 {
				if !l.over("ann") {
					allowed++
				}
			}
		}
		if allowed < limit || allowed >= limit+replicas {
			t.Fatalf("%d replicas allow %d of %d", replicas, allowed, limit)
		}
	})
}

func TestNoLimitAllowsEverything(t *testing.T) {
	l := limiter(always(0), time.Now, nil)
	for range 1000 {
		if l.over("10.0.0.1") {
			t.Fatal("refused")
		}
	}
}

func TestRememberedCallersAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	l := limiter(always(1), func() time.Time { return now }, nil)
	for n := range maxCallers + 100 {
		l.Allow(fmt.Sprintf("%d.%d.%d.1", 1+n>>16, n>>8&0xff, n&0xff))
	}
	if len(l.callers) > maxCallers+1 {
		t.Errorf("%d callers are remembered", len(l.callers))
	}
	now = now.Add(time.Minute)
	l.Allow("200.0.0.1")
	if len(l.callers) > 2 {
		t.Errorf("%d old callers were kept", len(l.callers))
	}
}
