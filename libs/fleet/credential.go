package fleet

import (
	"crypto/subtle"
	"time"
)

const (
	// ShortTokenLife is how long a short token of an instance is good for.
	ShortTokenLife = 15 * time.Minute
	// ShortTokenGrace is for how much longer it may be exchanged for another, and for nothing else.
	ShortTokenGrace = 15 * time.Minute
	// ReplacedGrace is for how long one that was exchanged may be exchanged once more: the
	// answer may have been lost.
	ReplacedGrace = time.Minute
)

// OwnToken is what an instance proves itself with: the root token of its environment, or a
// short one that was made with it.
type OwnToken struct {
	Instance   InstanceID
	Generation int64
	// Root is the SHA-256 of the root token, hex.
	Root string
	// Serial numbers the short tokens of a root, from 1. 0 is the root itself.
	Serial int64
	// ExpiresAt is zero for the root.
	ExpiresAt time.Time
}

// Of reports whether a token is an instance's, and of a generation that has not ended.
func (t OwnToken) Of(i *Instance) bool {
	if i == nil || i.Status == nil || i.Status.TokenHash == "" || i.Terminal() {
		return false
	}
	return i.Status.Generation == t.Generation && subtle.ConstantTimeCompare([]byte(i.Status.TokenHash), []byte(t.Root)) == 1
}

// InstanceCredential is what is known of an instance's tokens beside its status: the newest
// short one, and whether all of them were revoked. It says nothing about tokens of another
// root than its own, and does not exist before one of both happened. The gateway writes it;
// it is removed with the instance.
type InstanceCredential struct {
	Rev
	Instance InstanceID `json:"instance"`
	// Root is Status.TokenHash of the tokens it is about.
	Root string `json:"root"`
	// Serial is OwnToken.Serial of the newest short token, whose id, for people, is TokenID;
	// 0 when there was none.
	Serial    int64     `json:"serial,omitempty"`
	TokenID   string    `json:"tokenId,omitempty"`
	IssuedAt  time.Time `json:"issuedAt,omitzero"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// RevokedAt is when root and short tokens were ended, by RevokedBy; zero when they were not.
	RevokedAt time.Time `json:"revokedAt,omitzero"`
	RevokedBy string    `json:"revokedBy,omitempty"`
}

// About reports whether the record, which may be nil, is about tokens of a root.
func (c *InstanceCredential) About(root string) bool { return c != nil && c.Root == root }

// Revoked reports whether a root's tokens were ended; c may be nil.
func (c *InstanceCredential) Revoked(root string) bool { return c.About(root) && !c.RevokedAt.IsZero() }

// replaced reports whether a newer short token took a token's place. One that is newer than
// the record was made by a gateway that is ahead.
func (c *InstanceCredential) replaced(t OwnToken) bool {
	return c.About(t.Root) && t.Serial != 0 && t.Serial < c.Serial
}

// Admits reports whether an instance may use a token of its own now; c may be nil.
func (c *InstanceCredential) Admits(t OwnToken, now time.Time) bool {
	return !c.Revoked(t.Root) && !c.replaced(t) && (t.Serial == 0 || now.Before(t.ExpiresAt))
}

// Renews reports whether an instance may exchange a token of its own for a short one now; c
// may be nil.
func (c *InstanceCredential) Renews(t OwnToken, now time.Time) bool {
	switch {
	case c.Revoked(t.Root):
		return false
	case t.Serial == 0:
		return true
	case c.replaced(t) && (t.Serial != c.Serial-1 || !now.Before(c.IssuedAt.Add(ReplacedGrace))):
		return false
	}
	return now.Before(t.ExpiresAt.Add(ShortTokenGrace))
}
