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
)

// Fence proves that the author of a transaction still owns what it writes for:
// it compares the create-revision of the ownership key. The zero Fence is nobody's.
type Fence struct {
	key       string
	createRev int64
	refused   counter // counts the transactions refused on it; nil counts nothing
}

type counter interface{ Inc() }

// Epoch is the fencing token: the create-revision of the ownership key. It only ever grows.
func (f Fence) Epoch() int64 { return f.createRev }

// Key is the ownership key.
func (f Fence) Key() string { return f.key }

// FenceOf is the fence held by whoever created key at createRev.
func FenceOf[T any](k Key[T], createRev int64) Fence {
	return Fence{key: k.String(), createRev: createRev}
}

// Guard is a comparison on a key the transaction does not write.
type Guard struct {
	key    string
	modRev int64 // 0: the key must not exist; -1: it must
}

// Unchanged demands that the key was last written at modRev.
func Unchanged[T any](k Key[T], modRev int64) Guard { return Guard{k.String(), modRev} }

// Exists demands that the key exists.
func Exists[T any](k Key[T]) Guard { return Guard{k.String(), -1} }

// Missing demands that the key does not exist.
func Missing[T any](k Key[T]) Guard { return Guard{k.String(), 0} }

// Write is the change of one key with the comparison that guards it.
type Write struct {
	key    string
	value  string
	remove bool
	modRev int64 // the revision the change was computed from; 0: the key must not exist; anyRev: see Touch
	lease  clientv3.LeaseID
	err    error
}

// Key is the key the write changes.
func (w Write) Key() string { return w.key }

// Create writes a key that must not exist.
func Create[T any](k Key[T], v T) Write { return put(k.String(), v, 0) }

// Replace writes a key that must still be at modRev. With modRev 0 it is Create.
func Replace[T any](k Key[T], v T, modRev int64) Write { return put(k.String(), v, modRev) }

// Remove deletes a key that must still be at modRev.
func Remove[T any](k Key[T], modRev int64) Write {
	return Write{key: k.String(), remove: true, modRev: modRev}
}

func put(key string, v any, modRev int64) Write {
	s, err := encode(v)
	return Write{key: key, value: s, modRev: modRev, err: err}
}

// Txn is a set of changes that happen together or not at all.
type Txn struct {
	// Fences are the ownerships the changes are made under.
	Fences []Fence
	Guards []Guard
	Writes []Write
}

// Size is the number of comparisons, which is at least that of writes, to compare with MaxOps.
func (t Txn) Size() int { return len(t.Fences) + len(t.Guards) + len(t.Writes) }

// FullBytes is when a transaction that is filled bit by bit is full. What one more
// addition brings stays below etcd's limit on a request, 1.5 MiB: a group's spec and the
// values given at start are bounded (GroupSpec.Validate), so that none is 384 KiB large.
const FullBytes = 1 << 20

// Bytes is about what the transaction takes of a request.
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
	// Fence is true when an ownership was lost: the author must step down.
	Fence bool
	// Keys are the keys whose comparison failed, in the order of the transaction.
	Keys []string
	// Existed is true when each failed comparison was a Create of an existing key.
	Existed bool
}

// Error names the keys.
func (e *LostError) Error() string { return "comparison failed on " + strings.Join(e.Keys, ", ") }

// Lost is the LostError in err's chain, nil when there is none.
func Lost(err error) *LostError {
	var e *LostError
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// readBackTimeout bounds the question whether a write with a lost answer happened.
const readBackTimeout = 3 * time.Second

// Commit performs the transaction and returns its revision. Errors: Fenced when
// an ownership was lost, AlreadyExists when only creates met existing keys,
// Conflict for other failed comparisons (each with a LostError), Unavailable when
// the outcome is unknown or etcd is away: look at the state again before retrying.
// An etcd that is not the one that was joined (ForeignError) is away too.
func (c *Client) Commit(ctx context.Context, t Txn) (int64, error) {
	return c.commit(ctx, t, c.line.identity())
}

// commit performs the transaction where the meta record reads identity; anywhere
// when that is empty.
func (c *Client) commit(ctx context.Context, t Txn, identity string) (int64, error) {
	cmps, ops, probes, err := t.build()
	if err != nil {
		return 0, errs.Wrap("store.Commit", err)
	}
	if identity != "" {
		cmps = append(cmps, clientv3.Compare(clientv3.Value(MetaKey().String()), "=", identity))
		probes = append(probes, clientv3.OpGet(MetaKey().String()))
	}
	if len(cmps) > c.maxOps {
		return 0, errs.As(errs.TooLarge, "store.Commit", fmt.Errorf("%d comparisons, the limit is %d", len(cmps), c.maxOps))
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

// name names the transaction in an execution trace, by the first key that it writes.
func (t Txn) name() string {
	if !trace.IsEnabled() || len(t.Writes) == 0 {
		return "commit"
	}
	return "commit " + t.Writes[0].key
}

// build makes one comparison per fence, guard and write, and for the case that
// one fails a key-only read of each.
func (t Txn) build() (cmps []clientv3.Cmp, ops, probes []clientv3.Op, err error) {
	n := t.Size()
	cmps, ops, probes = make([]clientv3.Cmp, 0, n), make([]clientv3.Op, 0, len(t.Writes)), make([]clientv3.Op, 0, n)
	add := func(key string, cmp clientv3.Cmp) {
		cmps = append(cmps, cmp)
		probes = append(probes, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	for _, f := range t.Fences {
		if f.createRev <= 0 {
			return nil, nil, nil, errs.New(errs.Fenced, "nothing is owned under %q", f.key)
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

// unchanged compares a key's mod-revision. It is clientv3.Compare without the copy
// that makes of everything.
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

// explain turns the probes of a failed transaction into a typed error.
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
			if f.refused != nil && !lost.Fence { // once, however many were lost
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
	return errs.As(kind, "store.Commit", lost)
}

// readBack resolves a transaction whose answer was lost: it happened when all it
// wrote stands as written, by one revision. Anything else stays unknown, and the
// cause is returned.
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
		if w.modRev == anyRev { // others move it at once; the rest of the transaction tells
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
	if rev == 0 { // only removals: somebody else's would look the same
		return 0, cause
	}
	return rev, nil
}
