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

// claims are what the token of a login says.
type claims struct {
	jwt.RegisteredClaims
	// Role is for clients. Permissions come from the user's present role.
	Role string `json:"role"`
	// Epoch is the user's epoch when the token was issued.
	Epoch int64 `json:"epoch"`
	// Login is the same in all tokens of one login. It is empty in tokens of
	// earlier versions, each of which was its own login.
	Login string `json:"login,omitempty"`
	// SignedInAt is when the password was checked, in Unix seconds. It is 0 in tokens of earlier
	// versions; their logins count from the upgrade.
	SignedInAt int64 `json:"auth_time,omitempty"`
}

// refreshClaims are what a refresh token says.
type refreshClaims struct {
	jwt.RegisteredClaims
	Login  string `json:"login"`
	Serial int64  `json:"serial"`
}

// login is the id of the login that the token is of.
func (c claims) login() string { return cmp.Or(c.Login, c.ID) }

// signer makes and reads the tokens of logins.
type signer struct {
	ring func() *ring
	now  func() time.Time
	life func() time.Duration
	// proven caches tokens with a valid signature; nil disables the cache.
	proven *proven
}

// sign makes an access token of a login. It does not outlive the login.
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

// signRefresh makes the newest refresh token of a login. It is the same text each time, as long
// as the signing key is, so that a repeated request gets the same answer.
func (s signer) signRefresh(u *account.User, l account.Login) (string, error) {
	return s.signed(jwt.NewWithClaims(jwt.SigningMethodHS256, refreshClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audienceRefresh}, Subject: u.Username,
			IssuedAt: jwt.NewNumericDate(l.LastSeen()), ExpiresAt: jwt.NewNumericDate(l.Ends()),
		},
		Login: l.ID, Serial: l.Serial,
	}))
}

// signed is a token with its signature.
func (s signer) signed(token *jwt.Token) (string, error) {
	key := s.ring().current
	token.Header["kid"] = key.id
	text, err := token.SignedString(key.secret)
	return text, errs.WrapAs(errs.Internal, "auth.sign", err)
}

// parseRefresh reads a refresh token. Unauthenticated when it is none, or has expired.
func (s signer) parseRefresh(token string) (refreshClaims, error) {
	var c refreshClaims
	_, err := jwt.ParseWithClaims(token, &c, s.ring().keysOf,
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithIssuer(issuer), jwt.WithAudience(audienceRefresh), jwt.WithTimeFunc(s.now))
	if err != nil {
		return c, &errs.Error{Kind: errs.Unauthenticated, Message: "the refresh token is not valid or has expired: log in again", Err: err}
	}
	return c, nil
}

// keysOf are those a token may be signed with.
func (r *ring) keysOf(t *jwt.Token) (any, error) {
	id, _ := t.Header["kid"].(string)
	var set jwt.VerificationKeySet
	for _, k := range r.accepted(id) {
		set.Keys = append(set.Keys, k.secret)
	}
	return set, nil
}

// parse checks signature and times. Unauthenticated when either is not right.
func (s signer) parse(token string) (claims, error) {
	keys := s.ring()
	if c, ok := s.proven.get(token, keys); ok && s.now().Before(c.ExpiresAt.Time) {
		return c, nil
	}
	c, err := s.verify(token, keys)
	if err == nil {
		s.proven.put(token, keys, c)
	}
	return c, err
}

// verify checks signature and expiry. It accepts a token from the future: the clock of the
// gateway that issued it may be ahead.
func (s signer) verify(token string, keys *ring) (claims, error) {
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, keys.keysOf,
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithIssuer(issuer), jwt.WithAudience(audience), jwt.WithTimeFunc(s.now))
	if err != nil {
		return claims{}, &errs.Error{Kind: errs.Unauthenticated, Message: "the token is not valid or has expired: log in again", Err: err}
	}
	return c, nil
}
