// Package share keeps texts that somebody shows to others by a link: a crash, a piece of a
// log, a diagnosis. A text is redacted before it is kept.
//
// Invariants:
//
//   - A link cannot be guessed, and what deletes it is stored as its hash only.
//   - A text that is to be read once is: who reads it writes so first, comparing the record,
//     so that of many readers on all gateways exactly one gets it.
//   - A share and its text are written in one transaction, and a text goes in the one that
//     ends its share. There are so many shares and bytes of them; the oldest make room, and
//     before these what is damaged, which keeps nothing else from being listed or tidied.
package share

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

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// maxShares and maxBytes bound what is kept of the shares that can be read, in bytes as they
	// are stored; maxEnded how many of the others are told of.
	maxShares = 200
	maxBytes  = 32 << 20
	maxEnded  = 200
	// keepEnded is how long it is told what became of a share, from when it ended.
	keepEnded = 30 * 24 * time.Hour
	// attempts bounds how often a lost race is tried again.
	attempts = 8
)

// Errors that tell why a share cannot be ended.
var (
	// ErrRevoked is of one that was revoked before.
	ErrRevoked = errors.New("the share was revoked already")
	// ErrEnded is of one that has expired or was read.
	ErrEnded = errors.New("the share has ended by itself: there is nothing to revoke")
)

// Config is what Shares need; all of it is required.
type Config struct {
	Store      *store.Client
	Operations *operate.Operations
	Now        func() time.Time
}

// Shares keeps shared texts.
type Shares struct{ cfg Config }

// New wires the shares.
func New(cfg Config) *Shares { return &Shares{cfg} }

// Draft is what is to be shared.
type Draft struct {
	Kind     fleet.ShareKind
	Resource string
	Text     string
	// HasLogs is true when the text has records of a log, whatever its kind.
	HasLogs bool
	// For is how long it can be read; 0 is for ever.
	For           time.Duration
	Private, Burn bool
}

// Make shares a text. token deletes it; it is told nobody again.
func (s *Shares) Make(ctx context.Context, by operate.Actor, d Draft) (record fleet.Share, token string, err error) {
	id, token, text := rand.Text(), rand.Text(), Redact(d.Text)
	kept, size := fleet.NewShareText(id, text)
	record = fleet.Share{
		ID: id, Kind: d.Kind, Resource: d.Resource, Private: d.Private, HasLogs: d.HasLogs, Burn: d.Burn, SizeBytes: size, StoredBytes: len(kept.Text),
		Truncated: size < len(text), By: by.User, At: s.now(), DeleteHash: hashOf(token),
	}
	if d.For > 0 {
		record.ExpiresAt = record.At.Add(d.For)
	}
	_, err = s.cfg.Operations.Record(ctx, by, "share.create", "share", id[:auditID], string(d.Kind)+" "+d.Resource,
		store.Create(store.ShareKey(id), record), store.Create(store.ShareTextKey(id), kept))
	if err != nil {
		return record, "", errs.Wrap("share.Make", err)
	}
	_ = s.Tidy(ctx) // else it is done within the hour
	return record, token, nil
}

// auditID is how much of an id the audit tells: who reads it is not to read the text by it.
const auditID = 8

func (s *Shares) now() time.Time { return s.cfg.Now().UTC() }

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// List are all shares that can be read, the newest first.
func (s *Shares) List(ctx context.Context) ([]fleet.Share, error) {
	all, _, err := s.list(ctx)
	return all, errs.Wrap("share.List", err)
}

// list are all shares, the newest first, and those that cannot be read.
func (s *Shares) list(ctx context.Context) (all []fleet.Share, damaged []store.Damaged, err error) {
	var sound []store.Entry[fleet.Share]
	err = operate.InTime(ctx, func(ctx context.Context) error {
		sound, damaged, err = store.ListSound(ctx, s.cfg.Store, store.Shares())
		return err
	})
	for _, e := range sound {
		if err := named(e.Record, e.Name); err != nil {
			damaged = append(damaged, store.Damaged{Name: e.Name, ModRev: e.Record.ModRev, Err: err})
			continue
		}
		all = append(all, e.Record)
	}
	slices.SortFunc(all, func(a, b fleet.Share) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID)) })
	return all, damaged, err
}

// named is Internal when a record is not of the share whose key it stands under.
func named(record fleet.Share, id string) error {
	if record.ID != id {
		return errs.New(errs.Internal, "the record of the share %.*s is of another", auditID, id)
	}
	return nil
}

// idForm is what ids look like.
var idForm = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// None says alike of what never was, of what has ended, and of what is not the caller's to
// see, that there is nothing.
func None() error {
	return errs.New(errs.NotFound, "there is no such share: it may have expired, been revoked, or been read by the one who could")
}

// Get is a share, also one that has ended. NotFound when there is none.
func (s *Shares) Get(ctx context.Context, id string) (record fleet.Share, err error) {
	if !idForm.MatchString(id) {
		return record, None()
	}
	err = operate.InTime(ctx, func(ctx context.Context) error {
		record, err = store.Get(ctx, s.cfg.Store, store.ShareKey(id))
		return err
	})
	switch {
	case errs.Is(err, errs.NotFound):
		return record, None()
	case err == nil:
		err = named(record, id)
	}
	return record, errs.Wrap("share.Get", err)
}

// Find is a share that can be read now. NotFound when there is none, or it has ended;
// Unauthenticated when it is private and who asks may not see it.
func (s *Shares) Find(ctx context.Context, id string, maySee func(fleet.Share) bool) (record fleet.Share, err error) {
	if record, err = s.Get(ctx, id); err != nil {
		return record, err
	}
	switch {
	case !record.Active(s.now()):
		return record, None()
	case record.Private && !maySee(record):
		return record, errs.New(errs.Unauthenticated, "the share is private: send the token of a user who may share, and may see what it is of")
	}
	return record, nil
}

// Read is a share and its text, for by. What can be read once cannot be any more then. Errors
// are those of Find.
func (s *Shares) Read(ctx context.Context, by operate.Actor, id string, maySee func(fleet.Share) bool) (record fleet.Share, text string, err error) {
	if record, err = s.Find(ctx, id, maySee); err != nil {
		return record, "", err
	}
	var kept fleet.ShareText
	err = operate.InTime(ctx, func(ctx context.Context) error {
		kept, err = store.Get(ctx, s.cfg.Store, store.ShareTextKey(id))
		return err
	})
	switch {
	case errs.Is(err, errs.NotFound): // it ended meanwhile
		return record, "", None()
	case err != nil:
		return record, "", errs.Wrap("share.Read", err)
	}
	if text, err = kept.Read(); err != nil || !record.Burn {
		return record, text, err
	}
	burned := record
	burned.BurnedAt = s.now()
	err = s.end(ctx, by, "share.read", burned, kept.ModRev)
	if errs.Is(err, errs.Conflict) { // somebody else has it, or it was revoked
		return record, "", None()
	}
	return burned, text, err
}

// end writes that a share has ended, and takes its text away.
func (s *Shares) end(ctx context.Context, by operate.Actor, action string, ended fleet.Share, text int64) error {
	_, err := s.cfg.Operations.Record(ctx, by, action, "share", ended.ID[:auditID], string(ended.Kind)+" "+ended.Resource,
		store.Replace(store.ShareKey(ended.ID), ended, ended.ModRev), store.Remove(store.ShareTextKey(ended.ID), text))
	return errs.Wrap("share.end", err)
}

// Revoke ends a share. NotFound when there is none, or it is not by's to see, ErrRevoked and
// ErrEnded when it has ended.
func (s *Shares) Revoke(ctx context.Context, by operate.Actor, id string, maySee func(fleet.Share) bool) (record fleet.Share, err error) {
	for range attempts {
		if record, err = s.Get(ctx, id); err != nil {
			return record, err
		}
		switch {
		case !maySee(record):
			return fleet.Share{}, None()
		case !record.RevokedAt.IsZero():
			return record, ErrRevoked
		case !record.Active(s.now()):
			return record, ErrEnded
		}
		var kept fleet.ShareTextMark
		err = operate.InTime(ctx, func(ctx context.Context) error {
			kept, err = store.Get(ctx, s.cfg.Store, store.ShareTextMarkKey(id))
			return err
		})
		if err == nil {
			record.RevokedAt = s.now()
			err = s.end(ctx, by, "share.revoke", record, kept.ModRev)
		}
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound) { // else it is read at this moment
			return record, err
		}
	}
	return record, err
}

// Delete ends a share for who has the token that deletes it. NotFound when there is none, or
// it has ended; Denied when the token is another.
func (s *Shares) Delete(ctx context.Context, by operate.Actor, id, token string) error {
	record, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return err
	case subtle.ConstantTimeCompare([]byte(hashOf(token)), []byte(record.DeleteHash)) != 1:
		return errs.New(errs.Denied, "this is not the token that deletes the share: it was told when the share was made")
	}
	if _, err = s.Revoke(ctx, by, id, func(fleet.Share) bool { return true }); errors.Is(err, ErrRevoked) || errors.Is(err, ErrEnded) {
		return None()
	}
	return err
}

// Tidy takes away the texts of shares that have expired, shares that ended long ago, and the
// oldest of too many, of which those that can be read and those that have ended are counted
// apart; what is damaged goes before these. What others change meanwhile is left to the next
// time, and one that cannot be removed keeps no other. The error names what is damaged too.
func (s *Shares) Tidy(ctx context.Context) error {
	all, damaged, err := s.list(ctx)
	if err != nil {
		return errs.Wrap("share.Tidy", err)
	}
	now, bytes, kept, told := s.now(), 0, 0, 0
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
		if told >= maxEnded || now.Sub(ended) > keepEnded {
			failed = append(failed, s.remove(ctx, record.ID, record.ModRev))
			continue
		}
		told++
		if ended.Equal(record.ExpiresAt) { // what else ends a share takes its text along
			failed = append(failed, s.remove(ctx, record.ID, 0))
		}
	}
	for _, d := range damaged {
		if kept >= maxShares || bytes+fleet.MaxShareStored > maxBytes {
			failed = append(failed, s.remove(ctx, d.Name, d.ModRev))
			continue
		}
		failed = append(failed, errs.As(errs.Internal, "share.Tidy", fmt.Errorf("a share that cannot be read is kept until there are too many: %w", d.Err)))
		kept, bytes = kept+1, bytes+fleet.MaxShareStored
	}
	return errs.Wrap("share.Tidy", errors.Join(failed...))
}

// remove takes a share's text away, and the share that is at a revision; 0 leaves it.
func (s *Shares) remove(ctx context.Context, id string, share int64) error {
	return operate.InTime(ctx, func(ctx context.Context) error {
		var t store.Txn
		text, err := store.Get(ctx, s.cfg.Store, store.ShareTextMarkKey(id))
		switch {
		case err == nil:
			t.Writes = append(t.Writes, store.Remove(store.ShareTextKey(id), text.ModRev))
		case !errs.Is(err, errs.NotFound):
			return err
		}
		if share > 0 {
			t.Writes = append(t.Writes, store.Remove(store.ShareKey(id), share))
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
