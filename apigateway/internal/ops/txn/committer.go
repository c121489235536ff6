// Package txn commits changes of the fleet for the operations on all resources.
//
// An operation decides on a snapshot of the view. The Committer writes the decision in one etcd
// transaction that compares everything the decision rests on and contains the audit entry, and
// waits until the view shows the result. It decides again, a bounded number of times, when another
// change was faster.
//
// The package also remembers requests that are carried out once (Once), bounds how long a request
// waits for etcd (InTime), runs background jobs, and prunes the audit.
package txn

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Actor is the caller of an operation, as the audit records it.
type Actor struct {
	// User is a user name, or "instance <id>" for an instance.
	User string
	// ID is fleet.User.ID, Role the user's role, TokenID the ID of the API token. Each may be empty.
	ID, Role, TokenID string
	// IP is the client's address, RequestID the ID of the request. Both may be empty.
	IP, RequestID string
}

// Deps are what a Committer needs. Only Copy may be nil.
type Deps struct {
	Store *store.Client
	View  *view.View
	// Ring seals the stored responses of repeatable requests, and knows which key seals.
	Ring *seal.Ring
	// Copy receives each committed audit entry with its revision.
	Copy func(e account.AuditEntry, rev int64)
	Log  *slog.Logger
	Now  func() time.Time
}

// Committer reads the fleet, and commits changes of it together with their audit entries. The
// packages of all resources embed it. It is safe for concurrent use.
type Committer struct {
	Store *store.Client
	View  *view.View
	Log   *slog.Logger

	ring  *seal.Ring
	seal  seal.Box
	copy  func(e account.AuditEntry, rev int64)
	clock func() time.Time
	// turns has one token per shard. Its holder may change groups of the shard.
	turns [fleet.ShardCount]chan struct{}
	// jobs are executed by Run.
	jobs chan func(context.Context)
	// noted has the keys of recent calls of NoteOnce.
	noted *Recent
	// memory stores requests with an idempotency key.
	memory *store.Memory
	// pruning is true while a job deletes old audit entries.
	pruning atomic.Bool
}

// New returns a Committer. Its caller runs Run.
func New(d Deps) *Committer {
	o := &Committer{
		Store: d.Store, View: d.View, Log: d.Log,
		ring: d.Ring, seal: d.Ring.Values(content.SecretsKind), copy: d.Copy, clock: d.Now,
		jobs: make(chan func(context.Context), maxJobs), noted: NewRecent(), memory: newMemory(d),
	}
	for i := range o.turns {
		o.turns[i] = make(chan struct{}, 1)
	}
	return o
}

// Snapshot is the fleet as the view has it now.
func (o *Committer) Snapshot() *view.Snapshot { return o.View.Snapshot() }

// Now is the time with the precision records keep.
func (o *Committer) Now() time.Time { return o.clock().UTC() }

const (
	// attempts limits how often a change is retried after conflicts.
	attempts = 16
	// racePause is the longest pause after the first conflict. It doubles up to maxPause.
	racePause = 4 * time.Millisecond
	maxPause  = 100 * time.Millisecond
)

// Change is what an operation decided: a transaction and its audit entry. A Change without writes
// changes nothing.
type Change struct {
	Guards []store.Guard
	Writes []store.Write
	// Audit is the zero value if the change is not audited.
	Audit Entry
}

// Entry is what the audit entry of a change says.
type Entry struct {
	Action, Resource, ID, Details string
	// Objects are the objects whose history contains the entry, each as <kind>/<name>. Empty means only
	// the object with the entry's ID.
	Objects []string
	// Failure is why a login was refused, or why a command may not have reached its instance.
	Failure string
	// Begun is true if the operation also has effects outside the transaction.
	Begun bool
	// Before and After are the object as readers of the audit may see it. Before is nil for a new
	// object, After for a deleted one.
	Before, After any
}

// Mutate calls decide on a snapshot and commits its change. It decides again when another change
// was faster. It returns the revision of the commit, or of the snapshot when nothing changed. It
// returns errors of decide as they are, Conflict when every attempt lost its race, and Unavailable
// when etcd does not answer in time.
func (o *Committer) Mutate(ctx context.Context, by Actor, decide func(*view.Snapshot) (Change, error)) (rev int64, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		rev, err = o.MutateWithin(ctx, by, decide)
		return err
	})
	return rev, err
}

// MutateWithin is Mutate without a time limit of its own: the caller limits ctx.
func (o *Committer) MutateWithin(ctx context.Context, by Actor, decide func(*view.Snapshot) (Change, error)) (int64, error) {
	var lost error
	for n := range attempts {
		snap := o.Snapshot()
		c, err := decide(snap)
		switch {
		case err != nil:
			return snap.Rev, o.NameChanger(err)
		case len(c.Writes) == 0:
			tell(ctx, snap.Rev)
			return snap.Rev, nil
		}
		var noted account.AuditEntry
		if c.Audit.Action != "" {
			noted = o.NewEntry(by, c.Audit)
			c.Writes = append(c.Writes, store.Create(keys.Audit(noted.ID), noted))
		}
		rev, err := o.Commit(ctx, store.Txn{Guards: c.Guards, Writes: c.Writes}, c.Audit)
		if err == nil {
			o.Publish(noted, rev)
			return rev, o.committed(ctx, rev)
		}
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) {
			return 0, err
		}
		lost = err
		if _, err := o.View.WaitRev(ctx, rev); err != nil {
			return 0, err
		}
		if !pause.For(ctx, rand.N(min(racePause<<n, maxPause))) {
			break
		}
	}
	return 0, &errs.Error{Op: "operate", Kind: errs.Conflict, Message: "nothing was changed: too many concurrent changes of the same object; retry", Err: lost}
}

// MutateGroup is Mutate for a change of group g. Within a gateway, changes of the groups of one
// shard run one after the other.
func (o *Committer) MutateGroup(ctx context.Context, by Actor, g fleet.GroupName, decide func(*view.Snapshot) (Change, error)) (rev int64, err error) {
	turn := o.turns[fleet.ShardOf(g)]
	err = InTime(ctx, func(ctx context.Context) error { // the wait for a turn counts towards the deadline
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return o.noTurn(g, ctx.Err())
		}
		defer func() { <-turn }()
		rev, err = o.MutateWithin(ctx, by, decide)
		return err
	})
	return rev, err
}

// noTurn is the error of a change that was not tried, because ctx ended while earlier changes of
// the group were running.
func (o *Committer) noTurn(g fleet.GroupName, ended error) error {
	if _, away := o.Store.Away(); away {
		return errs.Wrap("operate", fmt.Errorf("%w: %w", store.ErrUnreachable, ended))
	}
	return &errs.Error{
		Op: "operate", Kind: errs.KindOf(ended), Err: ended,
		Message: fmt.Sprintf("group %q was not changed: earlier changes take too long; retry in a moment", g),
	}
}

// committed waits until the view shows rev, and starts pruning when the audit is too long.
func (o *Committer) committed(ctx context.Context, rev int64) error {
	tell(ctx, rev)
	s, err := o.View.WaitRev(ctx, rev)
	if overfull(s) {
		o.pruneSoon()
	}
	return err
}

// Publish gives a committed audit entry to Deps.Copy. It ignores the zero entry.
func (o *Committer) Publish(e account.AuditEntry, rev int64) {
	if e.ID != "" && o.copy != nil {
		o.copy(e, rev)
	}
}

// NewEntry returns the audit entry that is to be written in the transaction of a change.
func (o *Committer) NewEntry(by Actor, e Entry) account.AuditEntry {
	now := o.Now()
	id := ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String()
	return account.AuditEntry{
		AuditMark: account.AuditMark{
			ID: id, Username: by.User, Action: e.Action, ResourceType: e.Resource, ResourceID: e.ID, Objects: e.Objects, CreatedAt: now,
		},
		Details: e.Details, Failure: e.Failure, Before: auditable(e.Before), After: auditable(e.After),
		Role: by.Role, TokenID: by.TokenID, IPAddress: by.IP, RequestID: by.RequestID,
	}
}

// Record is RecordEntry for an entry with these fields.
func (o *Committer) Record(ctx context.Context, by Actor, action, resource, id, details string, writes ...store.Write) (rev int64, err error) {
	return o.RecordEntry(ctx, by, Entry{Action: action, Resource: resource, ID: id, Details: details}, writes...)
}

// RecordEntry commits an audit entry together with writes that need no decision on a snapshot.
func (o *Committer) RecordEntry(ctx context.Context, by Actor, e Entry, writes ...store.Write) (rev int64, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		noted := o.NewEntry(by, e)
		if rev, err = o.Commit(ctx, store.Txn{Writes: append(writes, store.Create(keys.Audit(noted.ID), noted))}, e); err != nil {
			return errs.Wrap("operate.Record", err)
		}
		o.Publish(noted, rev)
		return o.committed(ctx, rev)
	})
	return rev, err
}

// Current waits until the view shows the present revision of etcd, and returns that snapshot. It
// includes changes made through other gateways.
func (o *Committer) Current(ctx context.Context) (*view.Snapshot, error) {
	rev, err := o.Store.Revision(ctx)
	if err != nil {
		return nil, err
	}
	return o.View.WaitRev(ctx, rev)
}

// Revision returns the present revision of etcd. Unavailable when etcd does not answer in time.
func (o *Committer) Revision(ctx context.Context) (rev int64, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		rev, err = o.Store.Revision(ctx)
		return err
	})
	return rev, err
}
