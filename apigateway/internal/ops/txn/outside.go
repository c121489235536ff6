package txn

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Outside calls do, which acts outside the store, for example on a node agent, and audits it. It
// claims a request with an idempotency key before, and releases the claim when
// upstream.NotDone(err) proves that nothing happened. A failure to write the audit entry is only
// logged, because an error would make the caller repeat the action. Outside returns the errors of
// Claim and do.
func (o *Committer) Outside(ctx context.Context, by Actor, said Entry, do func() error) error {
	return o.OutsideNoting(ctx, by, said, func(*Entry) error { return do() })
}

// OutsideNoting is Outside for an action that changes its audit entry, because details are known only
// afterwards.
func (o *Committer) OutsideNoting(ctx context.Context, by Actor, said Entry, do func(*Entry) error) error {
	if err := o.Claim(ctx, said); err != nil {
		return err
	}
	failed := do(&said)
	if failed != nil {
		if upstream.NotDone(failed) {
			o.Unclaim(ctx)
		}
		said.Failure = Clip(errs.MessageOf(failed))
		ctx = WithoutOnce(context.WithoutCancel(ctx)) // canceled requests are recorded too
	}
	if _, err := o.RecordEntry(ctx, by, said); err != nil {
		o.Log.Warn("audit entry not written", "action", said.Action, said.Resource, said.ID, "error", err)
	}
	return failed
}

// Claim records a request with an idempotency key before an action outside the store, so that a
// concurrent repetition does nothing. It does nothing for other requests. Errors are those of
// Commit.
func (o *Committer) Claim(ctx context.Context, said Entry) error {
	if onceOf(ctx) == nil {
		return nil
	}
	said.Begun = true
	return InTime(ctx, func(ctx context.Context) error {
		_, err := o.Commit(ctx, store.Txn{}, said)
		return err
	})
}

// Unclaim removes the record that Claim made, because nothing was done: a repetition is carried
// out.
func (o *Committer) Unclaim(ctx context.Context) {
	n, _ := ctx.Value(onceKey{}).(*Once)
	if n == nil || n.made == nil || n.made.Stage != cluster.OperationBegun {
		return
	}
	err := InTime(ctx, func(ctx context.Context) error {
		_, err := o.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(keys.Operation(n.made.ID), n.made.ModRev)}})
		return err
	})
	if err != nil && !errs.Is(err, errs.Conflict) { // the record may have expired with its lease
		o.Log.Warn("a request for which nothing was done is still remembered: it is not carried out when it is sent again", "action", n.made.Action, "error", err)
		return
	}
	n.made = nil
}
