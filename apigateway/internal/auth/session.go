package auth

import (
	"cmp"
	"crypto/rand"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

const (
	// SessionTTL is the default lifetime of a login token.
	SessionTTL = 24 * time.Hour
	issuer     = "orrery"
	audience   = "orrery-api"
	// audienceRefresh distinguishes refresh tokens from access tokens.
	audienceRefresh = "orrery-refresh"
)

// claims are the claims of an access token.
type claims struct {
	jwt.RegisteredClaims
	// Role is for clients. Permissions come from the user's current role.
	Role string `json:"role"`
	// Epoch is the user's epoch when the token was issued.
	Epoch int64 `json:"epoch"`
	// Login is the same in all tokens of one login. It is empty in tokens of earlier versions: each of
	// them was its own login.
	Login string `json:"login,omitempty"`
	// SignedInAt is when the password was checked, in Unix seconds. It is 0 in tokens of earlier
	// versions; their logins count from the upgrade.
	SignedInAt int64 `json:"auth_time,omitempty"`
}

// refreshClaims are the claims of a refresh token.
type refreshClaims struct {
	jwt.RegisteredClaims
	Login  string `json:"login"`
	Serial int64  `json:"serial"`
}

// login returns the ID of the token's login.
func (c claims) login() string { return cmp.Or(c.Login, c.ID) }

// signer signs and verifies the tokens of logins and instances.
type signer struct {
	ring  func() *ring
	now   func() time.Time
	life  func() time.Duration
	cache *tokenCache
}

// sign returns an access token for a login. It does not outlive the login.
func (s signer) sign(u *account.User, l account.Login) (string, error) {
	now := s.now()
	expires := now.Add(s.life())
	if ends := l.Ends(); ends.Before(expires) {
		expires = ends
	}
	return s.signed(jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: u.Username, ID: rand.Text(),
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires),
		},
		Role: u.Role, Epoch: u.Epoch, Login: l.ID, SignedInAt: l.SignedInAt.Unix(),
	}))
}

// signRefresh returns the latest refresh token of a login. While the signing key stays, the token is always
// the same, so that a repeated request gets the same answer.
func (s signer) signRefresh(u *account.User, l account.Login) (string, error) {
	return s.signed(jwt.NewWithClaims(jwt.SigningMethodHS256, refreshClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audienceRefresh}, Subject: u.Username,
			IssuedAt: jwt.NewNumericDate(l.LastSeen()), ExpiresAt: jwt.NewNumericDate(l.Ends()),
		},
		Login: l.ID, Serial: l.Serial,
	}))
}

// signed signs a token with the current key.
func (s signer) signed(token *jwt.Token) (string, error) {
	key := s.ring().current
	token.Header["kid"] = key.id
	text, err := token.SignedString(key.secret)
	return text, errs.WrapAs(errs.Internal, "auth.sign", err)
}

// parseRefresh parses a refresh token. It returns Unauthenticated if the token is invalid or has expired.
func (s signer) parseRefresh(token string) (refreshClaims, error) {
	var c refreshClaims
	if err := s.verify(token, s.ring(), &c, audienceRefresh); err != nil {
		return c, &errs.Error{Kind: errs.Unauthenticated, Message: "the refresh token is not valid or has expired: log in again", Err: err}
	}
	return c, nil
}

// keysOf returns the keys that may have signed a token.
func (r *ring) keysOf(t *jwt.Token) (any, error) {
	id, _ := t.Header["kid"].(string)
	var set jwt.VerificationKeySet
	for _, k := range r.accepted(id) {
		set.Keys = append(set.Keys, k.secret)
	}
	return set, nil
}

// parse parses an access token. It returns Unauthenticated if the token is invalid or has expired.
func (s signer) parse(token string) (claims, error) {
	keys := s.ring()
	if c, ok := s.cache.get(token, keys); ok && s.now().Before(c.ExpiresAt.Time) {
		return c, nil
	}
	var c claims
	if err := s.verify(token, keys, &c, audience); err != nil {
		return claims{}, &errs.Error{Kind: errs.Unauthenticated, Message: "the token is not valid or has expired: log in again", Err: err}
	}
	s.cache.put(token, keys, c)
	return c, nil
}

// verify checks a token's signature, audience and expiry, and decodes its claims. It accepts a token from
// the future: the clock of the gateway that issued it may be ahead.
func (s signer) verify(token string, keys *ring, into jwt.Claims, audience string, more ...jwt.ParserOption) error {
	_, err := jwt.ParseWithClaims(token, into, keys.keysOf, append(more,
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithIssuer(issuer), jwt.WithAudience(audience), jwt.WithTimeFunc(s.now))...)
	return err
}
