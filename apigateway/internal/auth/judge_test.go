package auth

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSomebodyIsJudgedAgainAtAChangeAndWhenTheCredentialExpires(t *testing.T) {
	for _, c := range []struct {
		name           string
		changes, ended bool
		expires        time.Duration // 0 never
		again          bool
		after          time.Duration
	}{
		{"a change", true, false, 0, true, 0},
		{"a change before it expires", true, false, time.Hour, true, 0},
		{"it expires", false, false, time.Hour, true, time.Hour},
		{"it has expired", false, false, -time.Hour, true, 0},
		{"the stream has ended", false, true, time.Hour, false, 0},
		{"the stream has ended and it never expires", false, true, 0, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began, expires := &Service{cfg: Config{Now: time.Now}}, time.Now(), time.Time{}
				if c.expires != 0 {
					expires = began.Add(c.expires)
				}
				changed := make(chan struct{})
				if c.changes {
					close(changed)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.ended {
					cancel()
				}
				if got := s.waitForChange(ctx, changed, expires); got != c.again || time.Since(began) != c.after {
					t.Errorf("%v after %v", got, time.Since(began))
				}
			})
		})
	}
}
