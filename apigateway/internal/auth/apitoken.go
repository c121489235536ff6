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
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// tokenPrefix marks API tokens for scanners of leaked secrets.
	tokenPrefix = "ort_"
	tokenBytes  = 32
	// tokenDigits is the length of 32 bytes in base 62.
	tokenDigits   = 43
	maxTokenName  = 64
	maxTokens     = 1000
	maxTokenYears = 10
	// TokenLife is the default lifetime of an API token.
	TokenLife = 365 * 24 * time.Hour
)

// TokenWish describes an API token to create.
type TokenWish struct {
	Name string
	// ExpiresIn 0 never expires.
	ExpiresIn time.Duration
	// Scopes is a subset of the creator's permissions; nil means all of them.
	Scopes []Permission
	// Public tokens can only read. Without Scopes they have the permissions that both their creator and the
	// built-in role VIEWER have. Scopes may also name instances.files, templates.content and groups.env.
	Public bool
}

// NewToken returns a new API token of its creator or of a service account, and its record; the token itself
// is not stored. It returns Invalid, naming the field, for invalid input, and Denied if the owner lacks a
// permission or the creator is an API token that may not create others. The caller commits the record.
func (s *Service) NewToken(by, owner Identity, w TokenWish) (token string, record account.APIToken, err error) {
	if w.Name == "" || utf8.RuneCountInString(w.Name) > maxTokenName || validate.HasControl(w.Name) {
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
	if err := w.delegated(by.token, now); err != nil {
		return "", record, err
	}
	if s.cfg.View.Snapshot().APITokens.Len() >= maxTokens {
		return "", record, errs.New(errs.Exhausted, "there are %d API tokens, which is the maximum: delete some", maxTokens)
	}
	token = randomToken()
	record = account.APIToken{
		ID: strings.ToLower(ulid.Make().String()), Name: w.Name, Hash: hashToken(token), User: owner.User, UserID: owner.UserID,
		Scopes: scopes, Edition: account.PermissionEdition, Public: w.Public, CreatedAt: now,
	}
	if w.ExpiresIn > 0 {
		record.ExpiresAt = now.Add(w.ExpiresIn)
	}
	return token, record, nil
}

// ServiceAccount returns the identity of a service account, for NewToken.
func (s *Service) ServiceAccount(u *account.User) Identity {
	return identityOf(s.cfg.View.Snapshot(), u, nil)
}

// scopes returns the new token's scopes; nil for all permissions of its user.
func (w TokenWish) scopes(owner Identity) ([]Permission, error) {
	reading := builtIn[RoleViewer]
	public := readable()
	for n, p := range w.Scopes {
		field := fmt.Sprintf("scopes[%d]", n)
		switch {
		case !Known(p):
			return nil, errs.Field(field, "%q is no permission: the role %s has nearly all of them (orrery describe role %[2]s)", validate.Clip(string(p)), RoleAdmin)
		case w.Public && !slices.Contains(public, p):
			return nil, errs.Field(field, "%s is not for a PUBLIC token, which only reads", p)
		case !owner.Somewhere(p):
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
		has := slices.DeleteFunc(slices.Clone(reading), func(p Permission) bool { return !owner.Somewhere(p) })
		if len(has) == 0 {
			return nil, errs.New(errs.Denied, "you have no permission that a PUBLIC token could have")
		}
		return has, nil
	case owner.token != nil:
		return slices.Clone(owner.Permissions), nil
	}
	return nil, nil
}

// delegated checks a token created by an API token: the creator needs TokensCreate by name, and the new
// token must not outlive it.
func (w TokenWish) delegated(by *account.APIToken, now time.Time) error {
	switch {
	case by == nil:
		return nil
	case !slices.Contains(by.Scopes, TokensCreate):
		return errs.New(errs.Denied, "an API token can create others only if %s is among its scopes: log in instead", TokensCreate)
	case !by.ExpiresAt.IsZero() && (w.ExpiresIn == 0 || now.Add(w.ExpiresIn).After(by.ExpiresAt)):
		return errs.Field("expiresInSeconds", "must not exceed the remaining lifetime of the token in use, %d seconds", int64(by.ExpiresAt.Sub(now)/time.Second))
	}
	return nil
}

// randomToken returns tokenPrefix followed by 32 random bytes in base 62.
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

// byToken returns the identity of an API token.
func (s *Service) byToken(token string) (Identity, error) {
	record, ok := s.cfg.View.Snapshot().TokenByHash(hashToken(token))
	if !ok {
		return Identity{}, errs.New(errs.Unauthenticated, "the API token is not known, or has expired")
	}
	who, err := s.Judge(account.Credential{User: record.User, TokenID: record.ID, Until: record.ExpiresAt})
	if err != nil {
		return Identity{}, err
	}
	s.noteUse(record)
	return who, nil
}

// useEvery is the accuracy of a token's last use.
const useEvery = time.Hour

// noteUse schedules an update of a token's last use if it is outdated. It never blocks.
func (s *Service) noteUse(t *account.APIToken) {
	if s.cfg.Now().Sub(t.LastUsedAt) >= useEvery {
		s.inBackground(func(ctx context.Context) error { return s.writeUse(ctx, t.ID) })
	}
}

// writeUse stores a token's last use unless another gateway has already.
func (s *Service) writeUse(ctx context.Context, id string) error {
	now := s.cfg.Now().UTC()
	t, ok := s.cfg.View.Snapshot().APITokens.Get(id)
	if !ok || now.Sub(t.LastUsedAt) < useEvery {
		return nil
	}
	used := *t
	used.LastUsedAt = now
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.APIToken(id), used, t.ModRev)}})
	if err == nil || errs.Is(err, errs.Conflict) { // the token changed: the next use is recorded
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
		_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(keys.APIToken(id), t.ModRev)}})
		if err != nil && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("auth.PruneTokens", err)
		}
	}
	return nil
}
