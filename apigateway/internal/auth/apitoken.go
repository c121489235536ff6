package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// tokenPrefix marks API tokens, so that scanners of leaked secrets find them.
	tokenPrefix = "ort_"
	tokenBytes  = 32
	// tokenDigits is the length of 32 bytes in base 62.
	tokenDigits   = 43
	maxTokenName  = 64
	maxTokens     = 1000
	maxTokenYears = 10
	// TokenLife is how long an API token is good for unless its maker says otherwise.
	TokenLife = 365 * 24 * time.Hour
)

// TokenWish is what an API token is to be.
type TokenWish struct {
	Name string
	// ExpiresIn 0 never expires.
	ExpiresIn time.Duration
	// Scopes are what of its maker's permissions the token has; nil gives it all of them.
	Scopes []Permission
	// Public tokens only read: without Scopes, what both their maker and the built-in role
	// VIEWER may. Scopes may also name instances.files, templates.content and groups.env.
	Public bool
}

// NewToken is a fresh API token and its record; the token itself is kept nowhere. Invalid
// names the field at fault; Denied when its maker would give what it does not have, or is an
// API token that is not for making others. The caller commits the record.
func (s *Service) NewToken(owner Identity, w TokenWish) (token string, record fleet.APIToken, err error) {
	if w.Name == "" || utf8.RuneCountInString(w.Name) > maxTokenName || fleet.HasControl(w.Name) {
		return "", record, errs.Field("name", "must be 1 to %d characters that say what the token is for", maxTokenName)
	}
	if w.ExpiresIn < 0 || w.ExpiresIn > maxTokenYears*365*24*time.Hour {
		return "", record, errs.Field("expiresInSeconds", "must be between 0 (never) and %d years", maxTokenYears)
	}
	scopes, err := w.scopes(owner)
	if err != nil {
		return "", record, err
	}
	now := s.cfg.Now().UTC()
	if err := w.delegated(owner.token, now); err != nil {
		return "", record, err
	}
	if s.cfg.View.Snapshot().APITokens.Len() >= maxTokens {
		return "", record, errs.New(errs.Exhausted, "there are %d API tokens, the most there may be: delete some", maxTokens)
	}
	token = randomToken()
	record = fleet.APIToken{
		ID: strings.ToLower(ulid.Make().String()), Name: w.Name, Hash: hashToken(token), User: owner.User, UserID: owner.UserID,
		Scopes: scopes, Edition: fleet.PermissionEdition, Public: w.Public, CreatedAt: now,
	}
	if w.ExpiresIn > 0 {
		record.ExpiresAt = now.Add(w.ExpiresIn)
	}
	return token, record, nil
}

// scopes are the new token's; nil for all that its user may.
func (w TokenWish) scopes(owner Identity) ([]Permission, error) {
	reading := builtIn[RoleViewer]
	public := readable()
	for n, p := range w.Scopes {
		field := fmt.Sprintf("scopes[%d]", n)
		switch {
		case !Known(p):
			return nil, errs.Field(field, "there is no such permission: GET /api/v1/roles/%s names nearly all there are", RoleAdmin)
		case w.Public && !slices.Contains(public, p):
			return nil, errs.Field(field, "a PUBLIC token only reads: it cannot have %s", p)
		case !owner.Can(p):
			return nil, errs.New(errs.Denied, "you do not have the permission %s: leave it out", p)
		}
	}
	switch {
	case w.Scopes != nil && len(w.Scopes) == 0:
		return nil, errs.Field("scopes", "must name a permission, or be left out for all that you have")
	case w.Scopes != nil:
		all := slices.Sorted(slices.Values(w.Scopes))
		return slices.Compact(all), nil
	case w.Public:
		has := slices.DeleteFunc(slices.Clone(reading), func(p Permission) bool { return !owner.Can(p) })
		if len(has) == 0 {
			return nil, errs.New(errs.Denied, "you have no permission that a PUBLIC token could have")
		}
		return has, nil
	case owner.token != nil:
		return slices.Clone(owner.Permissions), nil
	}
	return nil, nil
}

// delegated refuses what an API token may not make: it is given the right by name only, and
// what it makes ends when it does.
func (w TokenWish) delegated(by *fleet.APIToken, now time.Time) error {
	switch {
	case by == nil:
		return nil
	case !slices.Contains(by.Scopes, TokensCreate):
		return errs.New(errs.Denied, "an API token makes others only when %s is among its scopes: log in", TokensCreate)
	case !by.ExpiresAt.IsZero() && (w.ExpiresIn == 0 || now.Add(w.ExpiresIn).After(by.ExpiresAt)):
		return errs.Field("expiresInSeconds", "must not be past the end of the token that is sent, in %d seconds", int64(by.ExpiresAt.Sub(now)/time.Second))
	}
	return nil
}

// randomToken is tokenPrefix and 32 random bytes in base 62.
func randomToken() string {
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	digits := new(big.Int).SetBytes(secret).Text(62)
	return tokenPrefix + strings.Repeat("0", tokenDigits-len(digits)) + digits
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// byToken is who an API token belongs to.
func (s *Service) byToken(token string) (Identity, error) {
	record, ok := s.cfg.View.Snapshot().TokenByHash(hashToken(token))
	if !ok {
		return Identity{}, errs.New(errs.Unauthenticated, "the API token is not known, or has expired")
	}
	who, err := s.Judge(fleet.Credential{User: record.User, TokenID: record.ID, Until: record.ExpiresAt})
	if err != nil {
		return Identity{}, err
	}
	s.noteUse(record)
	return who, nil
}

// useEvery is how exactly it is known when a token was last used.
const useEvery = time.Hour

// noteUse has it written that a token was used, if that is news. It never waits.
func (s *Service) noteUse(t *fleet.APIToken) {
	if s.cfg.Now().Sub(t.LastUsedAt) >= useEvery {
		s.later(func(ctx context.Context) error { return s.writeUse(ctx, t.ID) })
	}
}

// writeUse notes a use unless that was done by now, by whatever gateway.
func (s *Service) writeUse(ctx context.Context, id string) error {
	now := s.cfg.Now().UTC()
	t, ok := s.cfg.View.Snapshot().APITokens.Get(id)
	if !ok || now.Sub(t.LastUsedAt) < useEvery {
		return nil
	}
	used := *t
	used.LastUsedAt = now
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(store.APITokenKey(id), used, t.ModRev)}})
	if err == nil || errs.Is(err, errs.Conflict) { // somebody changed it: the next use is noted
		_, err = s.cfg.View.WaitRev(ctx, rev)
	}
	return err
}

// PruneTokens removes the records of tokens that expired more than a day ago.
func (s *Service) PruneTokens(ctx context.Context) error {
	limit := s.cfg.Now().Add(-24 * time.Hour)
	for id, t := range s.cfg.View.Snapshot().APITokens.All() {
		if t.ExpiresAt.IsZero() || t.ExpiresAt.After(limit) {
			continue
		}
		_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(store.APITokenKey(id), t.ModRev)}})
		if err != nil && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("auth.PruneTokens", err)
		}
	}
	return nil
}
