package account

import (
	"maps"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Login is a user's sign-in with a password and the state of its refresh tokens. Its key is the
// login's ID, which all its tokens contain. The gateway writes it with a lease. A missing record
// does not end the login; only a Revocation does.
type Login struct {
	record.Rev
	ID string `json:"id"`
	// UserID and Epoch are those of the user at the sign-in.
	UserID string `json:"userId"`
	Epoch  int64  `json:"epoch"`
	// SignedInAt is when the password was verified. The login is valid until Ends.
	SignedInAt time.Time `json:"signedInAt"`
	// IPAddress and UserAgent are those of the sign-in.
	IPAddress string `json:"ipAddress,omitempty"`
	UserAgent string `json:"userAgent,omitempty"`
	// Serial numbers the newest refresh token from 1. It is 0 for logins of earlier versions and
	// for logins whose record was evicted by newer ones.
	Serial int64 `json:"serial,omitempty"`
	// RefreshedAt is when the newest refresh token replaced its predecessor. Zero for the first
	// one.
	RefreshedAt time.Time `json:"refreshedAt,omitzero"`
}

const (
	// LoginLife is the maximum lifetime of a login, regardless of refreshes.
	LoginLife = 30 * 24 * time.Hour
	// RefreshGrace is how long a replaced refresh token still returns its successor, in case the
	// answer was lost.
	RefreshGrace = time.Minute
	// MaxLogins bounds the records of one user's logins. The least recently refreshed one is
	// evicted.
	MaxLogins = 64
)

// Ends returns when the login ends.
func (l *Login) Ends() time.Time { return l.SignedInAt.Add(LoginLife) }

// LastSeen returns when the user last signed in or refreshed the login.
func (l *Login) LastSeen() time.Time {
	if l.RefreshedAt.After(l.SignedInAt) {
		return l.RefreshedAt
	}
	return l.SignedInAt
}

// Of reports whether the login belongs to u and is still valid: it has not ended, and the user has
// not been recreated and has not invalidated earlier tokens.
func (l *Login) Of(u *User, now time.Time) bool {
	return u != nil && l.UserID == u.ID() && l.Epoch == u.Epoch && now.Before(l.Ends())
}

// RefreshVerdict is the decision about a presented refresh token.
type RefreshVerdict int

const (
	// RefreshRotates replaces the token with its successor.
	RefreshRotates RefreshVerdict = iota
	// RefreshRepeats returns the same successor again.
	RefreshRepeats
	// RefreshReused ends the login, because two parties have its tokens.
	RefreshReused
	// RefreshUnknown means that the record is gone or older than the token.
	RefreshUnknown
)

// Refresh decides about the refresh token with the given serial.
func (l *Login) Refresh(serial int64, now time.Time) RefreshVerdict {
	switch {
	case l.Serial == 0 || serial < 1 || serial > l.Serial:
		return RefreshUnknown
	case serial == l.Serial:
		return RefreshRotates
	case serial == l.Serial-1 && now.Before(l.RefreshedAt.Add(RefreshGrace)):
		return RefreshRepeats
	}
	return RefreshReused
}

// Rotated returns the login with the next refresh token.
func (l *Login) Rotated(now time.Time) Login {
	next := *l
	next.Serial, next.RefreshedAt = l.Serial+1, now
	return next
}

// Use records that a network was used. It drops networks unused for KnownNetworkLife, and the
// least recently used ones beyond MaxKnownNetworks.
func (k *KnownNetworks) Use(network string, now time.Time) {
	maps.DeleteFunc(k.Networks, func(_ string, at time.Time) bool { return now.Sub(at) >= KnownNetworkLife })
	k.Networks[network] = now
	for len(k.Networks) > MaxKnownNetworks {
		oldest := network
		for other, at := range k.Networks {
			if at.Before(k.Networks[oldest]) || at.Equal(k.Networks[oldest]) && other < oldest {
				oldest = other
			}
		}
		delete(k.Networks, oldest)
	}
}
