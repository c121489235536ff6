// Package sharedtext stores texts that users share by link: a crash, part of a log, diagnostics. A
// text is redacted before it is stored.
//
// Invariants:
//
//   - A link cannot be guessed. Only the hash of the token that deletes a share is stored.
//   - A single-read text is read exactly once, over all gateways: the reader first marks the share
//     as read with a conditional write.
//   - A share and its text are created and removed in one transaction. Number and size of shares
//     are limited. Damaged ones are removed first, then the oldest. Damaged shares do not
//     block the others.
package sharedtext

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// maxShares and maxBytes limit the readable shares, in bytes as stored. maxEnded limits the
	// records of ended ones.
	maxShares = 200
	maxBytes  = 32 << 20
	maxEnded  = 200
	// keepEnded is how long the record of an ended share is kept.
	keepEnded = 30 * 24 * time.Hour
	// attempts limits retries after a lost race.
	attempts = 8
)

// Errors for shares that cannot be ended.
var (
	// ErrRevoked: the share was revoked before.
	ErrRevoked = errors.New("the share was revoked already")
	// ErrEnded: the share has expired or was read.
	ErrEnded = errors.New("the share has already ended: it expired or was read")
)

// Config has what Shares needs. All fields are required.
type Config struct {
	Store      *store.Client
	Operations *ops.Operations
	Now        func() time.Time
}

// Shares stores shared texts.
type Shares struct{ cfg Config }

// New returns Shares.
func New(cfg Config) *Shares { return &Shares{cfg} }

// Draft is a text to share.
type Draft struct {
	Kind     account.ShareKind
	Resource string
	// Group is the group of an instance's console or crash.
	Group fleet.GroupName
	Text  string
	// HasLogs is true if the text contains log records, whatever its kind.
	HasLogs bool
	// For is how long the share can be read; 0 is forever.
	For           time.Duration
	Private, Burn bool
}

// Make shares a text. The returned token deletes the share and cannot be retrieved again.
func (s *Shares) Make(ctx context.Context, by txn.Actor, d Draft) (record account.Share, token string, err error) {
	id, token, text := rand.Text(), rand.Text(), Redact(d.Text)
	kept, size := account.NewShareText(id, text)
	record = account.Share{
		ID: id, Kind: d.Kind, Resource: d.Resource, Group: d.Group, Private: d.Private, HasLogs: d.HasLogs, Burn: d.Burn, SizeBytes: size, StoredBytes: len(kept.Text),
		Truncated: size < len(text), By: by.User, At: s.now(), DeleteHash: hashOf(token),
	}
	if d.For > 0 {
		record.ExpiresAt = record.At.Add(d.For)
	}
	_, err = s.cfg.Operations.Record(ctx, by, "share.create", "share", id[:auditID], string(d.Kind)+" "+d.Resource,
		store.Create(keys.Share(id), record), store.Create(keys.ShareText(id), kept))
	if err != nil {
		return record, "", errs.Wrap("sharedtext.Make", err)
	}
	_ = s.Tidy(ctx) // the hourly run retries
	return record, token, nil
}

// auditID is how many characters of an ID the audit shows, so that its readers cannot read the text.
const auditID = 8

func (s *Shares) now() time.Time { return s.cfg.Now().UTC() }

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// List returns all readable shares, newest first.
func (s *Shares) List(ctx context.Context) ([]account.Share, error) {
	all, _, err := s.list(ctx)
	return all, errs.Wrap("sharedtext.List", err)
}

// list returns all shares, newest first, and the damaged ones.
func (s *Shares) list(ctx context.Context) (all []account.Share, damaged []store.Damaged, err error) {
	var sound []store.Entry[account.Share]
	err = txn.InTime(ctx, func(ctx context.Context) error {
		sound, damaged, err = store.ListSound(ctx, s.cfg.Store, keys.Shares())
		return err
	})
	for _, e := range sound {
		if err := checkID(e.Record, e.Name); err != nil {
			damaged = append(damaged, store.Damaged{Name: e.Name, ModRev: e.Record.ModRev, Err: err})
			continue
		}
		all = append(all, e.Record)
	}
	slices.SortFunc(all, func(a, b account.Share) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID)) })
	return all, damaged, err
}

// checkID returns Internal if a record belongs to another share than its key says.
func checkID(record account.Share, id string) error {
	if record.ID != id {
		return errs.New(errs.Internal, "the record of share %.*s belongs to another share", auditID, id)
	}
	return nil
}

// idForm is the format of IDs.
var idForm = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// NotFound is the error for shares that never existed, have ended, or are hidden from the caller.
// Callers cannot tell these apart.
func NotFound() error {
	return errs.New(errs.NotFound, "there is no such share: it may have expired, been revoked, or been read already if it could be read only once")
}

// Get returns a share, also an ended one, or NotFound.
func (s *Shares) Get(ctx context.Context, id string) (record account.Share, err error) {
	if !idForm.MatchString(id) {
		return record, NotFound()
	}
	err = txn.InTime(ctx, func(ctx context.Context) error {
		record, err = store.Get(ctx, s.cfg.Store, keys.Share(id))
		return err
	})
	switch {
	case errs.Is(err, errs.NotFound):
		return record, NotFound()
	case err == nil:
		err = checkID(record, id)
	}
	return record, errs.Wrap("sharedtext.Get", err)
}

// Find returns a readable share. It returns NotFound if it does not exist or has ended, and
// Unauthenticated if it is private and the caller may not see it.
func (s *Shares) Find(ctx context.Context, id string, maySee func(account.Share) bool) (record account.Share, err error) {
	if record, err = s.Get(ctx, id); err != nil {
		return record, err
	}
	switch {
	case !record.Active(s.now()):
		return record, NotFound()
	case record.Private && !maySee(record):
		return record, errs.New(errs.Unauthenticated, "the share is private: send the token of a user who may share and may see the shared object")
	}
	return record, nil
}

// Read returns a share and its text. A single-read share ends. The errors are those of Find.
func (s *Shares) Read(ctx context.Context, by txn.Actor, id string, maySee func(account.Share) bool) (record account.Share, text string, err error) {
	if record, err = s.Find(ctx, id, maySee); err != nil {
		return record, "", err
	}
	var kept account.ShareText
	err = txn.InTime(ctx, func(ctx context.Context) error {
		kept, err = store.Get(ctx, s.cfg.Store, keys.ShareText(id))
		return err
	})
	switch {
	case errs.Is(err, errs.NotFound): // the share ended in the meantime
		return record, "", NotFound()
	case err != nil:
		return record, "", errs.Wrap("sharedtext.Read", err)
	}
	if text, err = kept.Read(); err != nil || !record.Burn {
		return record, text, err
	}
	burned := record
	burned.BurnedAt = s.now()
	err = s.end(ctx, by, "share.read", burned, kept.ModRev)
	if errs.Is(err, errs.Conflict) { // another reader was faster, or the share was revoked
		return record, "", NotFound()
	}
	return burned, text, err
}

// end stores that a share has ended and removes its text.
func (s *Shares) end(ctx context.Context, by txn.Actor, action string, ended account.Share, text int64) error {
	_, err := s.cfg.Operations.Record(ctx, by, action, "share", ended.ID[:auditID], string(ended.Kind)+" "+ended.Resource,
		store.Replace(keys.Share(ended.ID), ended, ended.ModRev), store.Remove(keys.ShareText(ended.ID), text))
	return errs.Wrap("sharedtext.end", err)
}

// Revoke ends a share. It returns NotFound if the share does not exist or is hidden from the
// caller, and ErrRevoked or ErrEnded if it has ended.
func (s *Shares) Revoke(ctx context.Context, by txn.Actor, id string, maySee func(account.Share) bool) (record account.Share, err error) {
	for range attempts {
		if record, err = s.Get(ctx, id); err != nil {
			return record, err
		}
		switch {
		case !maySee(record):
			return account.Share{}, NotFound()
		case !record.RevokedAt.IsZero():
			return record, ErrRevoked
		case !record.Active(s.now()):
			return record, ErrEnded
		}
		var kept account.ShareTextMark
		err = txn.InTime(ctx, func(ctx context.Context) error {
			kept, err = store.Get(ctx, s.cfg.Store, keys.ShareTextMark(id))
			return err
		})
		if err == nil {
			record.RevokedAt = s.now()
			err = s.end(ctx, by, "share.revoke", record, kept.ModRev)
		}
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound) { // else another caller is reading or ending it: retry
			return record, err
		}
	}
	return record, err
}

// Delete ends a share for a caller with its delete token. It returns NotFound if the share does not
// exist or has ended, and Denied if the token is wrong.
func (s *Shares) Delete(ctx context.Context, by txn.Actor, id, token string) error {
	record, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return err
	case subtle.ConstantTimeCompare([]byte(hashOf(token)), []byte(record.DeleteHash)) != 1:
		return errs.New(errs.Denied, "this is not the share's delete token: it was returned when the share was created")
	}
	if _, err = s.Revoke(ctx, by, id, func(account.Share) bool { return true }); errors.Is(err, ErrRevoked) || errors.Is(err, ErrEnded) {
		return NotFound()
	}
	return err
}

// Tidy removes the texts of expired shares, shares that ended long ago, and the oldest shares above
// the limits, which count readable and ended ones separately. Damaged shares are removed before
// readable ones. A share that cannot be removed does not stop the others; the error names it, and
// also the damaged shares.
func (s *Shares) Tidy(ctx context.Context) error {
	all, damaged, err := s.list(ctx)
	if err != nil {
		return errs.Wrap("sharedtext.Tidy", err)
	}
	now, bytes, kept, endedKept := s.now(), 0, 0, 0
	var failed []error
	for _, record := range all {
		if record.Active(now) {
			if kept >= maxShares || bytes+record.StoredBytes > maxBytes {
				failed = append(failed, s.remove(ctx, record.ID, record.ModRev))
				continue
			}
			kept, bytes = kept+1, bytes+record.StoredBytes
			continue
		}
		ended := record.EndedAt()
		if endedKept >= maxEnded || now.Sub(ended) > keepEnded {
			failed = append(failed, s.remove(ctx, record.ID, record.ModRev))
			continue
		}
		endedKept++
		if ended.Equal(record.ExpiresAt) { // reading and revoking remove the text themselves
			failed = append(failed, s.remove(ctx, record.ID, 0))
		}
	}
	for _, d := range damaged {
		if kept >= maxShares || bytes+account.MaxShareStored > maxBytes {
			failed = append(failed, s.remove(ctx, d.Name, d.ModRev))
			continue
		}
		failed = append(failed, errs.WrapAs(errs.Internal, "sharedtext.Tidy", fmt.Errorf("a damaged share is kept until the limit is reached: %w", d.Err)))
		kept, bytes = kept+1, bytes+account.MaxShareStored
	}
	return errs.Wrap("sharedtext.Tidy", errors.Join(failed...))
}

// remove removes a share's text and, if share is not 0, its record at that revision.
func (s *Shares) remove(ctx context.Context, id string, share int64) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		var t store.Txn
		text, err := store.Get(ctx, s.cfg.Store, keys.ShareTextMark(id))
		switch {
		case err == nil:
			t.Writes = append(t.Writes, store.Remove(keys.ShareText(id), text.ModRev))
		case !errs.Is(err, errs.NotFound):
			return err
		}
		if share > 0 {
			t.Writes = append(t.Writes, store.Remove(keys.Share(id), share))
		}
		if len(t.Writes) == 0 {
			return nil
		}
		if _, err = s.cfg.Store.Commit(ctx, t); errs.Is(err, errs.Conflict) {
			return nil
		}
		return err
	})
}
