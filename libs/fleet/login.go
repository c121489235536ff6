package fleet

import (
	"maps"
	"time"
)

// Login is a user's sign-in with a password, and the state of its refresh tokens. Its key is
// the id of the login, which all its tokens name. The gateway writes it on a lease; a record
// that is missing ends no login, only a Revocation does.
type Login struct {
	Rev
	ID string `json:"id"`
	// UserID and Epoch are the user's at the sign-in.
	UserID string `json:"userId"`
	Epoch  int64  `json:"epoch"`
	// SignedInAt is when the password was proven. Nothing of the login outlives Ends.
	SignedInAt time.Time `json:"signedInAt"`
	// IPAddress and UserAgent are of the sign-in.
	IPAddress string `json:"ipAddress,omitempty"`
	UserAgent string `json:"userAgent,omitempty"`
	// Serial numbers the newest refresh token, from 1. 0 has none: the login is of an earlier
	// version, or its record made room for newer ones.
	Serial int64 `json:"serial,omitempty"`
	// RefreshedAt is when that one replaced its predecessor; zero for the first.
	RefreshedAt time.Time `json:"refreshedAt,omitzero"`
}

const (
	// LoginLife is how long a login lasts from its sign-in, however often it is refreshed.
	LoginLife = 30 * 24 * time.Hour
	// RefreshGrace is how long a replaced refresh token still gets its successor: the answer
	// may have been lost.
	RefreshGrace = time.Minute
	// MaxLogins bounds the records of one user's logins; the least recently refreshed makes room.
	MaxLogins = 64
)

// Ends is when the login ends.
func (l *Login) Ends() time.Time { return l.SignedInAt.Add(LoginLife) }

// LastSeen is when the user signed in or refreshed the login.
func (l *Login) LastSeen() time.Time {
	if l.RefreshedAt.After(l.SignedInAt) {
		return l.RefreshedAt
	}
	return l.SignedInAt
}

// Of reports whether the login is a user's, and neither that user's password or name changed
// since nor its time is over.
func (l *Login) Of(u *User, now time.Time) bool {
	return u != nil && l.UserID == u.ID() && l.Epoch == u.Epoch && now.Before(l.Ends())
}

// RefreshVerdict is what becomes of a refresh token that is sent.
type RefreshVerdict int

const (
	// RefreshRotates replaces the token by its successor.
	RefreshRotates RefreshVerdict = iota
	// RefreshRepeats answers with the same successor once more.
	RefreshRepeats
	// RefreshReused ends the login: two parties have its tokens.
	RefreshReused
	// RefreshUnknown is a token of a record that is gone, or newer than the record.
	RefreshUnknown
)

// Refresh judges the refresh token with a serial.
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

// Rotated is the login with the next refresh token.
func (l *Login) Rotated(now time.Time) Login {
	next := *l
	next.Serial, next.RefreshedAt = l.Serial+1, now
	return next
}

// Use notes that a network was used, and forgets those unused for KnownNetworkLife and the
// least recently used past MaxKnownNetworks.
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
