package auth

import (
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
)

// audienceOwn is the audience of instances' short tokens, so that they are not accepted as login tokens.
const audienceOwn = "orrery-instance"

// ownClaims are the claims of an instance's short token.
type ownClaims struct {
	jwt.RegisteredClaims
	Generation int64  `json:"generation"`
	Root       string `json:"root"`
	Serial     int64  `json:"serial"`
}

// ShortToken returns the short token for a credential record and generation of an instance.
func (s *Service) ShortToken(c account.InstanceCredential, generation int64) (string, error) {
	return s.signer.signed(jwt.NewWithClaims(jwt.SigningMethodHS256, ownClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audienceOwn}, Subject: string(c.Instance), ID: c.TokenID,
			IssuedAt: jwt.NewNumericDate(c.IssuedAt), ExpiresAt: jwt.NewNumericDate(c.ExpiresAt),
		},
		Generation: generation, Root: c.Root, Serial: c.Serial,
	}))
}

// shortToken parses a short token. ok is false if it was not signed here, or expired so long ago that it
// cannot be refreshed.
func (s *Service) shortToken(text string) (t account.OwnToken, ok bool) {
	var c ownClaims
	err := s.signer.verify(text, s.signer.ring(), &c, audienceOwn, jwt.WithLeeway(account.ShortTokenGrace))
	if err != nil || c.Serial < 1 {
		return t, false
	}
	return account.OwnToken{
		Instance: fleet.InstanceID(c.Subject), Generation: c.Generation, Root: c.Root, Serial: c.Serial, ExpiresAt: c.ExpiresAt.Time,
	}, true
}

// ownToken returns the own token in a header and its instance; nil if no live instance has it.
func (s *Service) ownToken(snap *view.Snapshot, header string) (account.OwnToken, *fleet.Instance) {
	text, ok := bearer(header)
	if !ok {
		return account.OwnToken{}, nil
	}
	if strings.Count(text, ".") == 2 { // a root token has no dots
		if t, ok := s.shortToken(text); ok {
			if i, _ := snap.Instances.Get(t.Instance); t.Of(i) {
				return t, i
			}
		}
		return account.OwnToken{}, nil
	}
	hash := hashToken(text)
	i, _ := snap.InstanceByToken(hash)
	return rootOf(hash, i)
}

// rootOf returns the root token of an instance if its hash matches, else no token.
func rootOf(hash string, i *fleet.Instance) (account.OwnToken, *fleet.Instance) {
	if i == nil || i.Status == nil {
		return account.OwnToken{}, nil
	}
	if t := (account.OwnToken{Instance: i.Intent.ID, Generation: i.Status.Generation, Root: hash}); t.Of(i) {
		return t, i
	}
	return account.OwnToken{}, nil
}

// nodeRevoked reports whether an instance's own tokens are refused because its node is revoked: whoever
// controls that host has the tokens.
func (s *Service) nodeRevoked(snap *view.Snapshot, i *fleet.Instance) bool {
	r, ok := snap.RevokedNodes.Get(i.Status.Node)
	return ok && r.Holds(s.cfg.Now())
}

// InstanceOf returns the instance whose own token is in an Authorization header; nil if there is no
// valid one.
func (s *Service) InstanceOf(header string) *fleet.Instance {
	snap := s.cfg.View.Snapshot()
	t, i := s.ownToken(snap, header)
	if i == nil || s.nodeRevoked(snap, i) {
		return nil
	}
	if known, _ := snap.Credentials.Get(t.Instance); !known.Admits(t, s.cfg.Now()) {
		return nil
	}
	return i
}

// RenewerOf returns the own token in an Authorization header and its instance if the token may be
// exchanged for a short one, else nil.
func (s *Service) RenewerOf(header string) (account.OwnToken, *fleet.Instance) {
	snap := s.cfg.View.Snapshot()
	t, i := s.ownToken(snap, header)
	if i == nil || s.nodeRevoked(snap, i) {
		return t, nil
	}
	if known, _ := snap.Credentials.Get(t.Instance); !known.Renews(t, s.cfg.Now()) {
		return t, nil
	}
	return t, i
}
