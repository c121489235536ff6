package store

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Part is one unit of a Bulk. It happens completely, or not at all if one of its comparisons
// fails.
type Part struct {
	Guards []Guard
	Writes []Write
}

// Size returns the number of comparisons. There are at most as many writes.
func (p Part) Size() int { return len(p.Guards) + len(p.Writes) }

// Bulk is a set of independent parts, committed in one request and at one revision. The fences
// apply to all of them: if an ownership was lost, nothing happens. Otherwise a part whose
// comparison fails does not affect the others. Two parts must not write the same key.
type Bulk struct {
	// Fences are the ownerships under which the parts are written.
	Fences []Fence
	Parts  []Part
}

// BulkLimits returns the maximum number of parts of a Bulk, and of comparisons per part. A Bulk
// may have one fence less than parts. etcd limits the sum of the operations of a transaction and
// those of the longest nested one.
func (c *Client) BulkLimits() (parts, size int) { return c.maxOps / 2, c.maxOps - c.maxOps/2 }

// CommitBulk commits a Bulk. done says for each part whether it happened, at revision rev. If none
// did, rev is the revision of the comparison. After an error done is nil: Fenced if an ownership
// was lost and nothing happened, TooLarge beyond BulkLimits or etcd's request limit, Unavailable
// if the outcome is unknown or etcd is away. Unlike Commit it does not check whether a bulk with a
// lost answer happened. A caller who must know changes what the parts compare and then reads the
// records.
func (c *Client) CommitBulk(ctx context.Context, b Bulk) (done []bool, rev int64, err error) {
	identity := c.line.identity()
	outer := Txn{Fences: b.Fences}
	cmps, _, probes, err := outer.build()
	if err != nil {
		return nil, 0, errs.Wrap("store.CommitBulk", err)
	}
	if identity != "" {
		cmps = append(cmps, clientv3.Compare(clientv3.Value(keys.Meta().String()), "=", identity))
		probes = append(probes, clientv3.OpGet(keys.Meta().String()))
	}
	ops, err := c.buildParts(b.Parts, len(cmps))
	if err != nil {
		return nil, 0, errs.Wrap("store.CommitBulk", err)
	}
	before := c.line.now()
	resp, err := c.etcd.Txn(ctx).If(cmps...).Then(ops...).Else(probes...).Commit()
	if err != nil {
		return nil, 0, wrap("store.CommitBulk", err)
	}
	c.saw(before, resp.Header)
	if !resp.Succeeded {
		return nil, resp.Header.Revision, c.refusal(outer, resp, identity)
	}
	done = make([]bool, len(b.Parts))
	for i, r := range resp.Responses {
		done[i] = r.GetResponseTxn().GetSucceeded()
	}
	return done, resp.Header.Revision, nil
}

// refusal returns why a transaction did not happen: a failed comparison, or an etcd other than the
// one joined.
func (c *Client) refusal(t Txn, resp *clientv3.TxnResponse, identity string) error {
	err := t.explain(resp)
	if identity != "" && !errs.Is(err, errs.Fenced) { // a lost ownership explains it
		last := resp.Responses[len(resp.Responses)-1].GetResponseRange()
		if foreign := c.judge(last.GetKvs()); foreign != nil {
			return errs.Wrap("store.Commit", foreign)
		}
	}
	return err
}

// buildParts returns one nested transaction per part, for an outer transaction with cmps
// comparisons. They read nothing if a comparison fails, because the caller reads the state again.
func (c *Client) buildParts(parts []Part, cmps int) ([]clientv3.Op, error) {
	limit, size := c.BulkLimits()
	if len(parts) > limit || cmps > limit {
		return nil, errs.WrapAs(errs.TooLarge, "store.buildParts", fmt.Errorf("%d parts and %d comparisons; each may be at most %d", len(parts), cmps, limit))
	}
	ops := make([]clientv3.Op, 0, len(parts))
	for _, p := range parts {
		if p.Size() > size {
			return nil, errs.WrapAs(errs.TooLarge, "store.buildParts", fmt.Errorf("%d comparisons in a part, the limit is %d", p.Size(), size))
		}
		inner, puts, err := p.build()
		if err != nil {
			return nil, err
		}
		ops = append(ops, clientv3.OpTxn(inner, puts, nil))
	}
	return ops, nil
}

func (p Part) build() (cmps []clientv3.Cmp, ops []clientv3.Op, err error) {
	cmps, ops = make([]clientv3.Cmp, 0, p.Size()), make([]clientv3.Op, 0, len(p.Writes))
	for _, g := range p.Guards {
		cmps = append(cmps, g.compare())
	}
	for _, w := range p.Writes {
		if w.err != nil {
			return nil, nil, w.err
		}
		cmps = append(cmps, unchanged(w.key, w.modRev))
		ops = append(ops, w.op())
	}
	return cmps, ops, nil
}
