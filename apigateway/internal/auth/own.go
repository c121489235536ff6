package auth

import (
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// audienceOwn is whom short tokens of instances are for, so that none is taken for a login's.
const audienceOwn = "orrery-instance"

// ownClaims are what the short token of an instance says.
type ownClaims struct {
	jwt.RegisteredClaims
	Generation int64  `json:"generation"`
	Root       string `json:"root"`
	Serial     int64  `json:"serial"`
}

// ShortToken is the short token of an instance's generation that a record tells of.
func (s *Service) ShortToken(c fleet.InstanceCredential, generation int64) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, ownClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audienceOwn}, Subject: string(c.Instance), ID: c.TokenID,
			IssuedAt: jwt.NewNumericDate(c.IssuedAt), ExpiresAt: jwt.NewNumericDate(c.ExpiresAt),
		},
		Generation: generation, Root: c.Root, Serial: c.Serial,
	})
	key := s.signer.ring().current
	token.Header["kid"] = key.id
	signed, err := token.SignedString(key.secret)
	return signed, errs.As(errs.Internal, "auth.ShortToken", err)
}

// shortToken reads one; ok is false for what was not signed here, or has expired and can
// not be exchanged any more.
func (s *Service) shortToken(text string) (t fleet.OwnToken, ok bool) {
	var c ownClaims
	_, err := jwt.ParseWithClaims(text, &c, s.signer.ring().keysOf,
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(), jwt.WithLeeway(fleet.ShortTokenGrace),
		jwt.WithIssuer(issuer), jwt.WithAudience(audienceOwn), jwt.WithTimeFunc(s.cfg.Now))
	if err != nil || c.Serial < 1 {
		return t, false
	}
	return fleet.OwnToken{
		Instance: fleet.InstanceID(c.Subject), Generation: c.Generation, Root: c.Root, Serial: c.Serial, ExpiresAt: c.ExpiresAt.Time,
	}, true
}

// ownToken is the token of its own that an instance sends, and the instance; nil when it is
// of none that lives.
func (s *Service) ownToken(snap *view.Snapshot, header string) (fleet.OwnToken, *fleet.Instance) {
	text, ok := bearer(header)
	if !ok {
		return fleet.OwnToken{}, nil
	}
	if strings.Count(text, ".") == 2 { // a root has none
		if t, ok := s.shortToken(text); ok {
			if i, _ := snap.Instances.Get(t.Instance); t.Of(i) {
				return t, i
			}
		}
		return fleet.OwnToken{}, nil
	}
	hash := hashToken(text)
	i, _ := snap.InstanceByToken(hash)
	return rootOf(hash, i)
}

// rootOf is an instance's root token, when the hash is of it; else nobody's.
func rootOf(hash string, i *fleet.Instance) (fleet.OwnToken, *fleet.Instance) {
	if i == nil || i.Status == nil {
		return fleet.OwnToken{}, nil
	}
	if t := (fleet.OwnToken{Instance: i.Intent.ID, Generation: i.Status.Generation, Root: hash}); t.Of(i) {
		return t, i
	}
	return fleet.OwnToken{}, nil
}

// barred reports whether an instance's own tokens are refused now, since the node whose agent
// made them is revoked: who holds that host has them.
func (s *Service) barred(snap *view.Snapshot, i *fleet.Instance) bool {
	r, ok := snap.RevokedNodes.Get(i.Status.Node)
	return ok && r.Holds(s.cfg.Now())
}

// InstanceOf is the instance whose own token an Authorization header carries; nil when
// it carries none that is good now.
func (s *Service) InstanceOf(header string) *fleet.Instance {
	snap := s.cfg.View.Snapshot()
	t, i := s.ownToken(snap, header)
	if i == nil || s.barred(snap, i) {
		return nil
	}
	if known, _ := snap.Credentials.Get(t.Instance); !known.Admits(t, s.cfg.Now()) {
		return nil
	}
	return i
}

// RenewerOf is the instance that may have a short token for the one of its own that an
// Authorization header carries, and that token; nil when it may not.
func (s *Service) RenewerOf(header string) (fleet.OwnToken, *fleet.Instance) {
	snap := s.cfg.View.Snapshot()
	t, i := s.ownToken(snap, header)
	if i == nil || s.barred(snap, i) {
		return t, nil
	}
	if known, _ := snap.Credentials.Get(t.Instance); !known.Renews(t, s.cfg.Now()) {
		return t, nil
	}
	return t, i
}
