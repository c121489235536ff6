package operate

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// onceLife is how long a request is remembered at least, onceTogether for how long
	// those of one gateway share a lease, and maxOnce about how many are at most.
	onceLife     = 24 * time.Hour
	onceTogether = time.Hour
	maxOnce      = 10_000
	// maxAnswer is the size of the largest answer that is kept, packed, in bytes; maxUnpacked
	// bounds what it may be unpacked to.
	maxAnswer   = 8 << 10
	maxUnpacked = 1 << 20
)

// Once is a request that is carried out once, however often it is sent. It belongs to one
// handling of it.
type Once struct {
	// Name tells the request from all others, Request its body from others under that name.
	Name, Request string

	made   *fleet.Operation
	beaten bool
	shown  bool
}

// Made reports whether something was changed for the request.
func (n *Once) Made() bool { return n.made != nil }

// Beaten reports whether another handling of it was faster: then this one has changed nothing.
func (n *Once) Beaten() bool { return n.beaten }

type onceKey struct{}

// CarriedOut has what is changed on behalf of the context be remembered as the request's.
func CarriedOut(ctx context.Context, n *Once) context.Context {
	return context.WithValue(ctx, onceKey{}, n)
}

// ShownOnce says, before something is made on behalf of the context, that the answer has a
// secret of it: that is kept for nobody who sends the request again.
func ShownOnce(ctx context.Context) {
	if n := onceOf(ctx); n != nil {
		n.shown = true
	}
}

// elsewhere is a context whose request somebody else remembers.
func elsewhere(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, (*Once)(nil))
}

// onceOf is the request that is to be remembered with the next transaction, nil when none is.
func onceOf(ctx context.Context) *Once {
	n, _ := ctx.Value(onceKey{}).(*Once)
	if n == nil || n.made != nil {
		return nil
	}
	return n
}

// newMemory is how requests are remembered.
func newMemory(cfg Config) *store.Memory {
	return store.NewMemory(cfg.Store, store.Operations(), store.MemoryConfig{
		Life: onceLife, Together: onceTogether, Most: maxOnce, Now: cfg.Now,
		Forgot: func(early, all int) {
			cfg.Log.Warn("there are more requests with an Idempotency-Key than can be remembered for a day, the oldest of who sent the most are forgotten: one of those that is sent again is carried out again", "requests", all, "forgotten", early)
		},
	})
}

// commit commits a transaction, and in it that a request was carried out, if it is for one
// that is carried out once. Errors as of store.Client.Commit; Conflict without a LostError
// when the request was carried out meanwhile.
func (o *Operations) commit(ctx context.Context, t store.Txn, said entry) (rev int64, err error) {
	n := onceOf(ctx)
	if n == nil {
		return o.cfg.Store.Commit(ctx, t)
	}
	op := fleet.Operation{ID: n.Name, Request: n.Request, Action: said.action, ResourceType: said.resource, ResourceID: said.id, At: o.now()}
	if n.shown {
		op.Stage = fleet.OperationShown
	}
	if said.begun {
		op.Stage, op.Details = fleet.OperationBegun, said.details
	}
	key := store.OperationKey(op.ID)
	for first := true; ; first = false {
		w, err := store.Remember(ctx, o.memory, key, op)
		if err != nil {
			return 0, err
		}
		rev, err = o.cfg.Store.Commit(ctx, store.Txn{Fences: t.Fences, Guards: t.Guards, Writes: append(slices.Clip(t.Writes), w)})
		lost := store.Lost(err)
		switch {
		case err == nil:
			op.SetRev(rev, rev)
			n.made = &op
		case lost == nil && errs.Is(err, errs.Fenced) && first: // the lease has ended
			o.memory.Renew()
			continue
		case lost != nil && slices.Contains(lost.Keys, key.String()):
			n.beaten = true
			return rev, errBeaten
		}
		return rev, err
	}
}

// errBeaten is told to nobody: who sent the request is told what came of it.
var errBeaten = errs.New(errs.Exhausted, "the same request was carried out at this moment: send it again")

// claim remembers a request before something is done for it that can be in no transaction: of
// two of it at the same time one is. Who claimed one yields it when nothing was done after all.
// Errors as of commit, and nothing happens where the request is not one that is carried out once.
func (o *Operations) claim(ctx context.Context, said entry) error {
	if onceOf(ctx) == nil {
		return nil
	}
	said.begun = true
	return InTime(ctx, func(ctx context.Context) error {
		_, err := o.commit(ctx, store.Txn{}, said)
		return err
	})
}

// yield forgets a request that was claimed and for which nothing was done: sent again, it is
// carried out.
func (o *Operations) yield(ctx context.Context) {
	n, _ := ctx.Value(onceKey{}).(*Once)
	if n == nil || n.made == nil || n.made.Stage != fleet.OperationBegun {
		return
	}
	err := InTime(ctx, func(ctx context.Context) error {
		_, err := o.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(store.OperationKey(n.made.ID), n.made.ModRev)}})
		return err
	})
	if err != nil && !errs.Is(err, errs.Conflict) { // it went with its lease
		o.cfg.Log.Warn("a request for which nothing was done is still remembered: it is not carried out when it is sent again", "action", n.made.Action, "error", err)
		return
	}
	n.made = nil
}

// Answer is what a request was answered with.
type Answer struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header,omitempty"`
	Body   []byte            `json:"body,omitempty"`
}

// Remembered is what a request came to that was carried out already; ok is false when it was
// not, or is forgotten.
func (o *Operations) Remembered(ctx context.Context, name string) (op fleet.Operation, ok bool, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		op, err = store.Get(ctx, o.cfg.Store, store.OperationKey(name))
		if errs.Is(err, errs.NotFound) {
			return nil
		}
		ok = err == nil
		return errs.Wrap("operate.Remembered", err)
	})
	return op, ok, err
}

// Answered keeps what a request was answered with that changed something, and that all was
// done for it. Of one that is too large, and of nil, only the latter; of one that is shown once
// it is known already.
func (o *Operations) Answered(ctx context.Context, n *Once, a *Answer) error {
	if n.made.Stage == fleet.OperationShown {
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
			next.Answer = o.cfg.Seal.About("operation " + next.ID).Seal(packed)
		}
	}
	if next.Answer == nil && n.made.Stage == "" {
		return nil
	}
	return errs.Wrap("operate.Answered", o.rewrite(ctx, next))
}

// Unknown has it known of a request that was begun that what came of it is not, and that it
// is over.
func (o *Operations) Unknown(ctx context.Context, n *Once) error {
	if n.made.Stage != fleet.OperationBegun {
		return nil
	}
	next := *n.made
	next.Stage = fleet.OperationUnknown
	return errs.Wrap("operate.Unknown", o.rewrite(ctx, next))
}

// rewrite keeps something else of a request that was carried out.
func (o *Operations) rewrite(ctx context.Context, next fleet.Operation) error {
	return InTime(ctx, func(ctx context.Context) error {
		w, err := store.Rewrite(ctx, o.memory, store.OperationKey(next.ID), next, next.ModRev)
		if err != nil {
			return err
		}
		_, err = o.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{w}})
		return err
	})
}

// AnswerOf is what a request was answered with; ok is false where that is not known.
func (o *Operations) AnswerOf(op fleet.Operation) (a Answer, ok bool) {
	packed, err := o.cfg.Seal.About("operation " + op.ID).Open(op.Answer)
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
