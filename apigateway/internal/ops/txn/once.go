package txn

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// onceLife is how long requests are remembered at least. onceTogether is how long the records of a
	// gateway share a lease. maxOnce is roughly how many are kept.
	onceLife     = 24 * time.Hour
	onceTogether = time.Hour
	maxOnce      = 10_000
	// maxAnswer limits the compressed size of a stored response, maxUnpacked its uncompressed size, in
	// bytes.
	maxAnswer   = 8 << 10
	maxUnpacked = 1 << 20
)

// Once is one handling of a request that is carried out once, however often it is sent: a request
// with an idempotency key.
type Once struct {
	// Name identifies the request. Request is its content, which distinguishes requests with the same
	// name.
	Name, Request string

	made   *cluster.Operation
	beaten bool
	shown  bool
}

// Made reports whether this handling changed something.
func (n *Once) Made() bool { return n.made != nil }

// Beaten reports whether another handling of the request was faster. Then this one changed nothing.
func (n *Once) Beaten() bool { return n.beaten }

type onceKey struct{}

// CarriedOut returns a context whose first commit is recorded as the outcome of n.
func CarriedOut(ctx context.Context, n *Once) context.Context {
	return context.WithValue(ctx, onceKey{}, n)
}

// ShownOnce says that the answer contains a new secret. The answer is then not stored for
// repetitions. Call it before the commit.
func ShownOnce(ctx context.Context) {
	if n := onceOf(ctx); n != nil {
		n.shown = true
	}
}

// WithoutOnce returns a context whose commits are not recorded as the outcome of a request.
func WithoutOnce(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, (*Once)(nil))
}

// onceOf returns the request that the next commit is recorded for, or nil.
func onceOf(ctx context.Context) *Once {
	n, _ := ctx.Value(onceKey{}).(*Once)
	if n == nil || n.made != nil {
		return nil
	}
	return n
}

// newMemory returns the store of the requests that were carried out once.
func newMemory(d Deps) *store.Memory {
	return store.NewMemory(d.Store, keys.Operations(), store.MemoryConfig{
		Life: onceLife, Together: onceTogether, Most: maxOnce, Now: d.Now,
		Forgot: func(early, all int) {
			d.Log.Warn("there are more requests with an Idempotency-Key than can be remembered for a day, the oldest of who sent the most are forgotten: one of those that is sent again is carried out again", "requests", all, "forgotten", early)
		},
	})
}

// Commit commits a transaction. If ctx belongs to a Once, the transaction also records the request.
// Errors are those of store.Client.Commit, and Exhausted when another handling of the request was
// faster.
func (o *Committer) Commit(ctx context.Context, t store.Txn, said Entry) (rev int64, err error) {
	n := onceOf(ctx)
	if n == nil {
		return o.sealedCommit(ctx, t)
	}
	op := cluster.Operation{ID: n.Name, Request: n.Request, Action: said.Action, ResourceType: said.Resource, ResourceID: said.ID, At: o.Now()}
	if n.shown {
		op.Stage = cluster.OperationShown
	}
	if said.Begun {
		op.Stage, op.Details = cluster.OperationBegun, said.Details
	}
	key := keys.Operation(op.ID)
	for first := true; ; first = false {
		w, err := store.Remember(ctx, o.memory, key, op)
		if err != nil {
			return 0, err
		}
		rev, err = o.sealedCommit(ctx, store.Txn{Fences: t.Fences, Guards: t.Guards, Writes: append(slices.Clip(t.Writes), w)})
		lost := store.Lost(err)
		switch {
		case err == nil:
			op.SetRev(rev, rev)
			n.made = &op
		case lost == nil && errs.Is(err, errs.Fenced) && first: // the lease has expired
			o.memory.Renew()
			continue
		case lost != nil && slices.Contains(lost.Keys, key.String()):
			n.beaten = true
			return rev, errBeaten
		}
		return rev, err
	}
}

// errBeaten makes the server answer with the outcome of the handling that was faster.
var errBeaten = errs.New(errs.Exhausted, "the same request was carried out at this moment: send it again")

// Answer is the stored answer to a request.
type Answer struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header,omitempty"`
	Body   []byte            `json:"body,omitempty"`
}

// Remembered returns what was recorded of a request. ok is false when it was not carried out, or
// was forgotten.
func (o *Committer) Remembered(ctx context.Context, name string) (op cluster.Operation, ok bool, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		op, err = store.Get(ctx, o.Store, keys.Operation(name))
		if errs.Is(err, errs.NotFound) {
			return nil
		}
		ok = err == nil
		return errs.Wrap("operate.Remembered", err)
	})
	return op, ok, err
}

// Answered stores the answer to a request that changed something, and marks the request as done. It
// stores no answer when a is nil, too large, or contains a secret (ShownOnce).
func (o *Committer) Answered(ctx context.Context, n *Once, a *Answer) error {
	if n.made.Stage == cluster.OperationShown {
		return nil
	}
	next := *n.made
	next.Stage, next.Details = "", ""
	if a != nil {
		packed, err := pack(*a)
		if err != nil {
			return err
		}
		if len(packed) <= maxAnswer {
			next.Answer = o.seal.About("operation " + next.ID).Seal(packed)
		}
	}
	if next.Answer == nil && n.made.Stage == "" {
		return nil
	}
	return errs.Wrap("operate.Answered", o.rewrite(ctx, next))
}

// Unknown records that a claimed request has ended and that its outcome is unknown.
func (o *Committer) Unknown(ctx context.Context, n *Once) error {
	if n.made.Stage != cluster.OperationBegun {
		return nil
	}
	next := *n.made
	next.Stage = cluster.OperationUnknown
	return errs.Wrap("operate.Unknown", o.rewrite(ctx, next))
}

// rewrite replaces the record of a request.
func (o *Committer) rewrite(ctx context.Context, next cluster.Operation) error {
	return InTime(ctx, func(ctx context.Context) error {
		w, err := store.Rewrite(ctx, o.memory, keys.Operation(next.ID), next, next.ModRev)
		if err != nil {
			return err
		}
		_, err = o.Store.Commit(ctx, store.Txn{Writes: []store.Write{w}})
		return err
	})
}

// AnswerOf returns the stored answer to a request. ok is false when none is stored.
func (o *Committer) AnswerOf(op cluster.Operation) (a Answer, ok bool) {
	packed, err := o.seal.About("operation " + op.ID).Open(op.Answer)
	if err != nil {
		return a, false
	}
	raw, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxUnpacked))
	return a, err == nil && json.Unmarshal(raw, &a) == nil
}

func pack(a Answer) ([]byte, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(raw); err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}
