package account

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestInstanceTokenValidity(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	short := func(serial int64, left time.Duration) OwnToken {
		return OwnToken{Root: "r", Serial: serial, ExpiresAt: now.Add(left)}
	}
	newest := func(serial int64, ago time.Duration) *InstanceCredential {
		return &InstanceCredential{Root: "r", Serial: serial, IssuedAt: now.Add(-ago)}
	}
	for name, c := range map[string]struct {
		record          *InstanceCredential
		token           OwnToken
		admitted, renew bool
	}{
		"the root, of which nothing is known":             {nil, OwnToken{Root: "r"}, true, true},
		"the root, beside a short one":                    {newest(1, time.Second), OwnToken{Root: "r"}, true, true},
		"the newest":                                      {newest(3, time.Second), short(3, time.Minute), true, true},
		"one that a gateway which is ahead has made":      {newest(3, time.Second), short(4, time.Minute), true, true},
		"one of which nothing is known yet":               {nil, short(1, time.Minute), true, true},
		"one that has expired":                            {newest(3, time.Hour), short(3, 0), false, true},
		"one that has expired long ago":                   {newest(3, time.Hour), short(3, -ShortTokenGrace), false, false},
		"one that was just replaced":                      {newest(3, time.Second), short(2, time.Minute), false, true},
		"one that was replaced a minute ago":              {newest(3, ReplacedGrace), short(2, time.Minute), false, false},
		"one that was replaced twice":                     {newest(3, time.Second), short(1, time.Minute), false, false},
		"the root, when all were revoked":                 {&InstanceCredential{Root: "r", RevokedAt: now}, OwnToken{Root: "r"}, false, false},
		"a short one, when all were revoked":              {&InstanceCredential{Root: "r", Serial: 3, RevokedAt: now}, short(3, time.Minute), false, false},
		"a newer one, when all were revoked":              {&InstanceCredential{Root: "r", Serial: 3, RevokedAt: now}, short(4, time.Minute), false, false},
		"another root than those that were revoked":       {&InstanceCredential{Root: "q", Serial: 9, RevokedAt: now}, OwnToken{Root: "r"}, true, true},
		"a short one of another root than those replaced": {&InstanceCredential{Root: "q", Serial: 9}, short(1, time.Minute), true, true},
	} {
		if got := c.record.Admits(c.token, now); got != c.admitted {
			t.Errorf("%s: admitted %v", name, got)
		}
		if got := c.record.Renews(c.token, now); got != c.renew {
			t.Errorf("%s: renewed %v", name, got)
		}
	}
}

func TestTokenBelongsToOneLivingGeneration(t *testing.T) {
	token := OwnToken{Instance: "a", Generation: 2, Root: "r"}
	instance := func(edit func(*fleet.Instance)) *fleet.Instance {
		i := &fleet.Instance{Intent: fleet.Intent{ID: "a", Generation: 2}, Status: &fleet.Status{Generation: 2, State: fleet.Online, TokenHash: "r"}}
		edit(i)
		return i
	}
	for name, c := range map[string]struct {
		i    *fleet.Instance
		want bool
	}{
		"it lives":             {instance(func(*fleet.Instance) {}), true},
		"there is none":        {nil, false},
		"nothing was reported": {instance(func(i *fleet.Instance) { i.Status = nil }), false},
		"it has no token":      {instance(func(i *fleet.Instance) { i.Status.TokenHash = "" }), false},
		"another root":         {instance(func(i *fleet.Instance) { i.Status.TokenHash = "q" }), false},
		"another generation":   {instance(func(i *fleet.Instance) { i.Status.Generation, i.Intent.Generation = 3, 3 }), false},
		"it has ended":         {instance(func(i *fleet.Instance) { i.Status.State = fleet.Stopped }), false},
		"its node is lost":     {instance(func(i *fleet.Instance) { i.Status.State = fleet.Offline }), true},
	} {
		if got := token.Of(c.i); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
