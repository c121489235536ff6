package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/time/rate"

	"github.com/orreryhq/orrery/apigateway/internal/settings"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config is what operations need; all of it is required but what says otherwise.
type Config struct {
	Store  *store.Client
	View   *view.View
	Agents *upstream.Agents
	// Seal seals as fleet.SecretsKind.
	Seal seal.Box
	// Settings are those that hold now.
	Settings func() settings.Settings
	// TellReset tells a user of a token that resets the password. Nil resets none.
	TellReset func(ctx context.Context, u fleet.User, token string) error
	// Copy takes each entry of the audit that was committed, and its revision. Nil takes none.
	Copy func(e fleet.AuditEntry, rev int64)
	// Pause waits before a password is looked at after wrong ones; false when ctx ends first. Nil
	// means pause.For.
	Pause func(ctx context.Context, d time.Duration) bool
	Log   *slog.Logger
	Now   func() time.Time
}

// Operations changes the fleet. It is safe for concurrent use.
type Operations struct {
	cfg Config
	// turns has one token per shard: who holds it works on the shard's groups.
	turns [fleet.ShardCount]chan struct{}
	// jobs are done behind an answer, by Run.
	jobs chan func(context.Context)
	// revocations has what ended logins stand on, lockouts what wrong passwords do, logins and
	// networks what logins and known networks do.
	revocations, lockouts, logins, networks shared
	// seen has what was audited lately and is not audited again for a while.
	seen *recent
	// refusals bounds the wrong passwords that are audited.
	refusals *rate.Limiter
	// memory has what was done for requests that are carried out once.
	memory *store.Memory
	// pruning is true while the audit is being made shorter.
	pruning atomic.Bool
}

// maxJobs bounds what waits to be done behind an answer.
const maxJobs = 64

// New wires the operations.
func New(cfg Config) *Operations {
	if cfg.Pause == nil {
		cfg.Pause = pause.For
	}
	o := &Operations{
		cfg: cfg, memory: newMemory(cfg), jobs: make(chan func(context.Context), maxJobs),
		revocations: shared{together: revocationsTogether}, lockouts: shared{together: lockoutsTogether},
		logins: shared{together: loginsTogether}, networks: shared{together: networksTogether},
		seen: newRecent(), refusals: rate.NewLimiter(rate.Every(refusalEvery), refusalBurst),
	}
	for i := range o.turns {
		o.turns[i] = make(chan struct{}, 1)
	}
	return o
}

// Actor is who asks.
type Actor struct {
	// User is a user's name, or "instance <id>" for an instance.
	User string
	// ID is fleet.User.ID of a user, Role what the user has, TokenID the API token's; empty
	// where there is none.
	ID, Role, TokenID string
	// IP is where the request came from, RequestID its id; may be empty.
	IP, RequestID string
}

// Snapshot is the fleet as the view has it now.
func (o *Operations) Snapshot() *view.Snapshot { return o.cfg.View.Snapshot() }

// now is the time with the precision records keep.
func (o *Operations) now() time.Time { return o.cfg.Now().UTC() }

const (
	// attempts bounds how often a lost race is decided anew.
	attempts = 16
	// racePause is the longest pause after the first lost race; it doubles.
	racePause = 4 * time.Millisecond
	maxPause  = 100 * time.Millisecond
)

// change is what an operation decided: a transaction and what to note about it.
// A change without writes is none.
type change struct {
	guards []store.Guard
	writes []store.Write
	audit  entry // the zero value for what is nobody's doing
}

// entry is what the audit says of a change.
type entry struct {
	action, resource, id, details string
	// objects are those in whose history this is, each as <kind>/<name>; none for that of id.
	objects []string
	// failure is why a login was refused, or why a command may not have come to its instance.
	failure string
	// begun is true while more is done than is in the transaction of the entry.
	begun bool
	// before and after are what was and what is, as it may be shown to who reads the audit;
	// nil for what was made, or is gone.
	before, after any
}

// mutate decides and commits until a decision holds, and returns the revision of
// the commit; without a change, of the snapshot. Errors of decide are returned as
// they are; Conflict when all attempts lost their race, Unavailable when etcd does
// not answer in a few seconds.
func (o *Operations) mutate(ctx context.Context, by Actor, decide func(*view.Snapshot) (change, error)) (rev int64, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		rev, err = o.attempt(ctx, by, decide)
		return err
	})
	return rev, err
}

// attempt is mutate for as long as ctx lasts.
func (o *Operations) attempt(ctx context.Context, by Actor, decide func(*view.Snapshot) (change, error)) (int64, error) {
	var lost error
	for n := range attempts {
		snap := o.Snapshot()
		c, err := decide(snap)
		switch {
		case err != nil:
			return snap.Rev, o.blamed(err)
		case len(c.writes) == 0:
			tell(ctx, snap.Rev)
			return snap.Rev, nil
		}
		var noted fleet.AuditEntry
		if c.audit.action != "" {
			noted = o.note(by, c.audit)
			c.writes = append(c.writes, store.Create(store.AuditKey(noted.ID), noted))
		}
		rev, err := o.commit(ctx, store.Txn{Guards: c.guards, Writes: c.writes}, c.audit)
		if err == nil {
			o.copied(noted, rev)
			return rev, o.committed(ctx, rev)
		}
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) {
			return 0, err
		}
		lost = err
		if _, err := o.cfg.View.WaitRev(ctx, rev); err != nil {
			return 0, err
		}
		if !pause.For(ctx, rand.N(min(racePause<<n, maxPause))) {
			break
		}
	}
	return 0, &errs.Error{Op: "operate", Kind: errs.Conflict, Message: "nothing was changed: too many concurrent changes of the same object; retry", Err: lost}
}

// mutateGroup is mutate in turn with all others who work on the group.
func (o *Operations) mutateGroup(ctx context.Context, by Actor, g fleet.GroupName, decide func(*view.Snapshot) (change, error)) (rev int64, err error) {
	turn := o.turns[fleet.ShardOf(g)]
	err = InTime(ctx, func(ctx context.Context) error { // waiting for those who wait for etcd counts too
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return o.noTurn(g, ctx.Err())
		}
		defer func() { <-turn }()
		rev, err = o.attempt(ctx, by, decide)
		return err
	})
	return rev, err
}

// noTurn says why a change to a group was not tried: its context ended before the earlier
// changes did.
func (o *Operations) noTurn(g fleet.GroupName, ended error) error {
	if _, away := o.cfg.Store.Away(); away {
		return errs.Wrap("operate", fmt.Errorf("%w: %w", store.ErrUnreachable, ended))
	}
	return &errs.Error{
		Op: "operate", Kind: errs.KindOf(ended), Err: ended,
		Message: fmt.Sprintf("group %q was not changed: earlier changes take too long; retry in a moment", g),
	}
}

type tellKey struct{}

// Telling has heard be told the revision of each change that is made on behalf of the
// context; of one that turns out to be none, the revision it was judged by.
func Telling(ctx context.Context, heard func(rev int64)) context.Context {
	return context.WithValue(ctx, tellKey{}, heard)
}

func tell(ctx context.Context, rev int64) {
	if heard, ok := ctx.Value(tellKey{}).(func(int64)); ok {
		heard(rev)
	}
}

// byTurns has what is told from several goroutines be heard one by one: who hears it may write
// it to an answer.
func byTurns(ctx context.Context) context.Context {
	var mu sync.Mutex
	return Telling(ctx, func(rev int64) {
		mu.Lock()
		defer mu.Unlock()
		tell(ctx, rev)
	})
}

// committed waits until the view has what was written, and keeps the audit short.
func (o *Operations) committed(ctx context.Context, rev int64) error {
	tell(ctx, rev)
	s, err := o.cfg.View.WaitRev(ctx, rev)
	if overfull(s) {
		o.pruneSoon()
	}
	return err
}

// copied gives an entry that was committed to the sink; the zero entry is none.
func (o *Operations) copied(e fleet.AuditEntry, rev int64) {
	if e.ID != "" && o.cfg.Copy != nil {
		o.cfg.Copy(e, rev)
	}
}

// note is the audit entry of a change, to be written in its transaction.
func (o *Operations) note(by Actor, e entry) fleet.AuditEntry {
	now := o.now()
	id := ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String()
	return fleet.AuditEntry{
		AuditMark: fleet.AuditMark{
			ID: id, Username: by.User, Action: e.action, ResourceType: e.resource, ResourceID: e.id, Objects: e.objects, CreatedAt: now,
		},
		Details: e.details, Failure: e.failure, Before: auditable(e.before), After: auditable(e.after),
		Role: by.Role, TokenID: by.TokenID, IPAddress: by.IP, RequestID: by.RequestID,
	}
}

// maxAudited is the size of the largest object that an audit entry keeps, in bytes.
const maxAudited = 16 << 10

// truncated is the only field of what is larger.
const truncated = "truncated"

// auditable is an object as the audit keeps it: nothing of nil, and of a very large one
// that it was so.
func auditable(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil || len(b) > maxAudited {
		return json.RawMessage(`{"` + truncated + `":true}`)
	}
	return b
}

// Record commits writes of another package with an audit entry: for what needs
// no decision on the fleet, such as a user's tokens.
func (o *Operations) Record(ctx context.Context, by Actor, action, resource, id, details string, writes ...store.Write) (rev int64, err error) {
	return o.record(ctx, by, entry{action: action, resource: resource, id: id, details: details}, writes...)
}

func (o *Operations) record(ctx context.Context, by Actor, e entry, writes ...store.Write) (rev int64, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		noted := o.note(by, e)
		if rev, err = o.commit(ctx, store.Txn{Writes: append(writes, store.Create(store.AuditKey(noted.ID), noted))}, e); err != nil {
			return errs.Wrap("operate.Record", err)
		}
		o.copied(noted, rev)
		return o.committed(ctx, rev)
	})
	return rev, err
}
