package account

import (
	"crypto/subtle"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

const (
	// ShortTokenLife is the lifetime of an instance's short token.
	ShortTokenLife = 15 * time.Minute
	// ShortTokenGrace is how long an expired short token may still be exchanged for a new one. It
	// is valid for nothing else.
	ShortTokenGrace = 15 * time.Minute
	// ReplacedGrace is how long a replaced short token may be exchanged once more, in case the
	// answer to the first exchange was lost.
	ReplacedGrace = time.Minute
)

// OwnToken is the token an instance authenticates with: the root token from its environment, or a
// short token issued for it.
type OwnToken struct {
	Instance   fleet.InstanceID
	Generation int64
	// Root is the SHA-256 of the root token, in hex.
	Root string
	// Serial numbers the short tokens of a root token from 1. 0 means the root token itself.
	Serial int64
	// ExpiresAt is zero for the root token.
	ExpiresAt time.Time
}

// Of reports whether the token belongs to the instance and to its running generation.
func (t OwnToken) Of(i *fleet.Instance) bool {
	if i == nil || i.Status == nil || i.Status.TokenHash == "" || i.Terminal() {
		return false
	}
	return i.Status.Generation == t.Generation && subtle.ConstantTimeCompare([]byte(i.Status.TokenHash), []byte(t.Root)) == 1
}

// InstanceCredential is the state of an instance's tokens: the newest short token and whether all
// were revoked. It applies only to tokens of Root, and exists only once a short token was issued
// or the tokens were revoked. The gateway writes it. It is removed with the instance.
type InstanceCredential struct {
	record.Rev
	Instance fleet.InstanceID `json:"instance"`
	// Root is the Status.TokenHash of the tokens the record is about.
	Root string `json:"root"`
	// Serial is the OwnToken.Serial of the newest short token, 0 before the first. TokenID is its
	// display ID.
	Serial    int64     `json:"serial,omitempty"`
	TokenID   string    `json:"tokenId,omitempty"`
	IssuedAt  time.Time `json:"issuedAt,omitzero"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// RevokedAt is when the root and short tokens were revoked by RevokedBy. Zero means not
	// revoked.
	RevokedAt time.Time `json:"revokedAt,omitzero"`
	RevokedBy string    `json:"revokedBy,omitempty"`
}

// About reports whether the record is about tokens of a root. c may be nil.
func (c *InstanceCredential) About(root string) bool { return c != nil && c.Root == root }

// Revoked reports whether a root's tokens were revoked. c may be nil.
func (c *InstanceCredential) Revoked(root string) bool { return c.About(root) && !c.RevokedAt.IsZero() }

// replaced reports whether a newer short token replaced t. A token newer than the record was
// issued by a gateway that has read a newer record.
func (c *InstanceCredential) replaced(t OwnToken) bool {
	return c.About(t.Root) && t.Serial != 0 && t.Serial < c.Serial
}

// Admits reports whether an instance may use token t now. c may be nil.
func (c *InstanceCredential) Admits(t OwnToken, now time.Time) bool {
	return !c.Revoked(t.Root) && !c.replaced(t) && (t.Serial == 0 || now.Before(t.ExpiresAt))
}

// Renews reports whether an instance may exchange token t for a new short token now. c may be nil.
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
