package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/trace"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Fence proves that the author of a transaction still has an ownership: it compares the
// create-revision of the ownership key. The zero Fence always fails.
type Fence struct {
	key       string
	createRev int64
	refused   counter // counts the transactions it refused; may be nil
}

type counter interface{ Inc() }

// Epoch returns the fencing token: the create-revision of the ownership key. It only increases.
func (f Fence) Epoch() int64 { return f.createRev }

// Key returns the ownership key.
func (f Fence) Key() string { return f.key }

// FenceOf returns the fence of the owner that created key at createRev.
func FenceOf[T any](k keys.Key[T], createRev int64) Fence {
	return Fence{key: k.String(), createRev: createRev}
}

// Guard is a comparison of a key that the transaction does not write.
type Guard struct {
	key    string
	modRev int64 // 0: the key must not exist; -1: it must
}

// Unchanged requires that the key was last written at modRev.
func Unchanged[T any](k keys.Key[T], modRev int64) Guard { return Guard{k.String(), modRev} }

// Exists requires that the key exists.
func Exists[T any](k keys.Key[T]) Guard { return Guard{k.String(), -1} }

// Missing requires that the key does not exist.
func Missing[T any](k keys.Key[T]) Guard { return Guard{k.String(), 0} }

// Write is the change of one key with its comparison.
type Write struct {
	key    string
	value  string
	remove bool
	modRev int64 // the revision the change was computed from; 0: the key must not exist; anyRev: see Touch
	lease  clientv3.LeaseID
	err    error
}

// Key returns the key that the write changes.
func (w Write) Key() string { return w.key }

// Value returns the encoded record that the write stores; empty if it removes the key.
func (w Write) Value() string { return w.value }

// Create returns a write of a key that must not exist.
func Create[T any](k keys.Key[T], v T) Write { return put(k.String(), v, 0) }

// Replace returns a write of a key that must still be at modRev. With modRev 0 it is Create.
func Replace[T any](k keys.Key[T], v T, modRev int64) Write { return put(k.String(), v, modRev) }

// Remove returns the deletion of a key that must still be at modRev.
func Remove[T any](k keys.Key[T], modRev int64) Write {
	return Write{key: k.String(), remove: true, modRev: modRev}
}

func put(key string, v any, modRev int64) Write {
	s, err := encode(v)
	return Write{key: key, value: s, modRev: modRev, err: err}
}

// Txn is a set of changes that happen completely or not at all.
type Txn struct {
	// Fences are the ownerships under which the changes are made.
	Fences []Fence
	Guards []Guard
	Writes []Write
}

// Size returns the number of comparisons, to compare with MaxOps. There are at most as many
// writes.
func (t Txn) Size() int { return len(t.Fences) + len(t.Guards) + len(t.Writes) }

// FullBytes is the size at which a transaction that is filled step by step is full. One more
// addition stays below etcd's request limit of 1.5 MiB, because a group's spec and start values
// are bounded (GroupSpec.Validate): none exceeds 384 KiB.
const FullBytes = 1 << 20

// Bytes returns the approximate size of the transaction in a request.
func (t Txn) Bytes() int {
	const perKey = 64 // of framing and comparisons
	n := 0
	for _, f := range t.Fences {
		n += 2*len(f.key) + perKey
	}
	for _, g := range t.Guards {
		n += 2*len(g.key) + perKey
	}
	for _, w := range t.Writes {
		n += 3*len(w.key) + len(w.value) + perKey
	}
	return n
}

// LostError says which comparisons of a transaction failed.
type LostError struct {
	// Fence is true if an ownership was lost: the author must stop.
	Fence bool
	// Keys are the keys whose comparison failed, in the order of the transaction.
	Keys []string
	// Existed is true if each failed comparison was a Create of an existing key.
	Existed bool
}

// Error implements error.
func (e *LostError) Error() string { return "comparison failed on " + strings.Join(e.Keys, ", ") }

// Lost returns the LostError in err's chain, or nil.
func Lost(err error) *LostError {
	var e *LostError
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// readBackTimeout bounds the check whether a write with a lost answer happened.
const readBackTimeout = 3 * time.Second

// Commit commits the transaction and returns its revision. The error is Fenced if an ownership was
// lost, AlreadyExists if only creates failed, and Conflict for other failed comparisons, each with
// a LostError. It is Unavailable if the outcome is unknown or etcd is away: read the state again
// before retrying. An etcd other than the one joined (ForeignError) counts as away.
func (c *Client) Commit(ctx context.Context, t Txn) (int64, error) {
	return c.commit(ctx, t, c.line.identity())
}

// commit commits the transaction if the meta record equals identity, or in any case if identity is
// empty.
func (c *Client) commit(ctx context.Context, t Txn, identity string) (int64, error) {
	cmps, ops, probes, err := t.build()
	if err != nil {
		return 0, errs.Wrap("store.Commit", err)
	}
	if identity != "" {
		cmps = append(cmps, clientv3.Compare(clientv3.Value(keys.Meta().String()), "=", identity))
		probes = append(probes, clientv3.OpGet(keys.Meta().String()))
	}
	if len(cmps) > c.maxOps {
		return 0, errs.WrapAs(errs.TooLarge, "store.Commit", fmt.Errorf("%d comparisons; the limit is %d", len(cmps), c.maxOps))
	}
	defer trace.StartRegion(ctx, t.name()).End()
	before := c.line.now()
	resp, err := c.etcd.Txn(ctx).If(cmps...).Then(ops...).Else(probes...).Commit()
	if err != nil {
		return c.readBack(ctx, t, wrap("store.Commit", err))
	}
	c.saw(before, resp.Header)
	if resp.Succeeded {
		return resp.Header.Revision, nil
	}
	return resp.Header.Revision, c.refusal(t, resp, identity)
}

// name returns the transaction's name in an execution trace, derived from the first key it writes.
func (t Txn) name() string {
	if !trace.IsEnabled() || len(t.Writes) == 0 {
		return "commit"
	}
	return "commit " + t.Writes[0].key
}

// build returns one comparison per fence, guard and write, and key-only reads of the same keys for
// the case that a comparison fails.
func (t Txn) build() (cmps []clientv3.Cmp, ops, probes []clientv3.Op, err error) {
	n := t.Size()
	cmps, ops, probes = make([]clientv3.Cmp, 0, n), make([]clientv3.Op, 0, len(t.Writes)), make([]clientv3.Op, 0, n)
	add := func(key string, cmp clientv3.Cmp) {
		cmps = append(cmps, cmp)
		probes = append(probes, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	for _, f := range t.Fences {
		if f.createRev <= 0 {
			return nil, nil, nil, errs.New(errs.Fenced, "there is no ownership under %q", f.key)
		}
		add(f.key, clientv3.Compare(clientv3.CreateRevision(f.key), "=", f.createRev))
	}
	for _, g := range t.Guards {
		add(g.key, g.compare())
	}
	for _, w := range t.Writes {
		if w.err != nil {
			return nil, nil, nil, w.err
		}
		add(w.key, w.compare())
		ops = append(ops, w.op())
	}
	return cmps, ops, probes, nil
}

func (g Guard) compare() clientv3.Cmp {
	if g.modRev < 0 {
		return clientv3.Compare(clientv3.CreateRevision(g.key), ">", 0)
	}
	return unchanged(g.key, g.modRev)
}

// unchanged compares a key's mod-revision. It is clientv3.Compare without its copies.
func unchanged(key string, modRev int64) clientv3.Cmp {
	c := clientv3.ModRevision(key)
	c.GetCompare().TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: modRev} // "equal" is the zero result
	return c
}

func (w Write) op() clientv3.Op {
	switch {
	case w.remove:
		return clientv3.OpDelete(w.key)
	case w.lease != 0:
		return clientv3.OpPut(w.key, w.value, clientv3.WithLease(w.lease))
	}
	return clientv3.OpPut(w.key, w.value)
}

// explain turns the reads of a failed transaction into a typed error.
func (t Txn) explain(resp *clientv3.TxnResponse) error {
	lost := &LostError{Existed: true}
	i := 0
	state := func() (create, mod int64) {
		if kvs := resp.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			create, mod = kvs[0].CreateRevision, kvs[0].ModRevision
		}
		i++
		return create, mod
	}
	for _, f := range t.Fences {
		if create, _ := state(); create != f.createRev {
			if f.refused != nil && !lost.Fence { // count once per transaction
				f.refused.Inc()
			}
			lost.Fence, lost.Existed = true, false
			lost.Keys = append(lost.Keys, f.key)
		}
	}
	for _, g := range t.Guards {
		if _, mod := state(); g.modRev < 0 && mod == 0 || g.modRev >= 0 && mod != g.modRev {
			lost.Existed = false
			lost.Keys = append(lost.Keys, g.key)
		}
	}
	for _, w := range t.Writes {
		if _, mod := state(); w.lost(mod) {
			lost.Existed = lost.Existed && w.modRev == 0
			lost.Keys = append(lost.Keys, w.key)
		}
	}
	kind := errs.Conflict
	switch {
	case lost.Fence:
		kind = errs.Fenced
	case lost.Existed && len(lost.Keys) > 0:
		kind = errs.AlreadyExists
	}
	return errs.WrapAs(kind, "store.Commit", lost)
}

// readBack resolves a transaction whose answer was lost. It happened if everything it wrote is
// stored as written, at a single revision. Otherwise the outcome stays unknown and the cause is
// returned.
func (c *Client) readBack(ctx context.Context, t Txn, cause error) (int64, error) {
	if errs.Is(cause, errs.Fenced) || errs.Is(cause, errs.TooLarge) || errs.Is(cause, errs.Denied) || errs.Is(cause, errs.Exhausted) {
		return 0, cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTimeout)
	defer cancel()
	reads := make([]clientv3.Op, len(t.Writes))
	for i, w := range t.Writes {
		reads[i] = clientv3.OpGet(w.key)
	}
	resp, err := c.etcd.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return 0, cause
	}
	var rev int64
	for i, w := range t.Writes {
		if w.modRev == anyRev { // others may have changed it since; the other writes decide
			continue
		}
		kvs := resp.Responses[i].GetResponseRange().GetKvs()
		if w.remove {
			if len(kvs) > 0 {
				return 0, cause
			}
			continue
		}
		if len(kvs) == 0 {
			return 0, cause
		}
		kv := kvs[0]
		mine := string(kv.Value) == w.value && kv.Lease == int64(w.lease) && kv.ModRevision > w.modRev
		if !mine || rev != 0 && rev != kv.ModRevision {
			return 0, cause
		}
		rev = kv.ModRevision
	}
	if rev == 0 { // only removals, which another client could have made
		return 0, cause
	}
	return rev, nil
}
