package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"math/big"
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
)

// NewToken is a fresh API token and its record; the token itself is kept nowhere.
// expiresIn 0 never expires. Invalid names the field at fault. The caller commits the record.
func (s *Service) NewToken(owner Identity, name string, expiresIn time.Duration) (token string, record fleet.APIToken, err error) {
	if name == "" || utf8.RuneCountInString(name) > maxTokenName || fleet.HasControl(name) {
		return "", record, errs.Field("name", "must be 1 to %d characters that say what the token is for", maxTokenName)
	}
	if expiresIn < 0 || expiresIn > maxTokenYears*365*24*time.Hour {
		return "", record, errs.Field("expiresInSeconds", "must be between 0 (never) and %d years", maxTokenYears)
	}
	if s.cfg.View.Snapshot().APITokens.Len() >= maxTokens {
		return "", record, errs.New(errs.Exhausted, "there are %d API tokens, the most there may be: delete some", maxTokens)
	}
	now := s.cfg.Now().UTC()
	token = randomToken()
	record = fleet.APIToken{ID: strings.ToLower(ulid.Make().String()), Name: name, Hash: hashToken(token), User: owner.User, CreatedAt: now}
	if expiresIn > 0 {
		record.ExpiresAt = now.Add(expiresIn)
	}
	return token, record, nil
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
	refused := errs.New(errs.Unauthenticated, "the API token is not known, or has expired")
	snap := s.cfg.View.Snapshot()
	record, ok := snap.TokenByHash(hashToken(token))
	if !ok || !record.ExpiresAt.IsZero() && !s.cfg.Now().Before(record.ExpiresAt) {
		return Identity{}, refused
	}
	user, ok := snap.Users.Get(record.User)
	if !ok {
		return Identity{}, refused
	}
	return identityOf(snap, user, record), nil
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
