package store

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// Part is one of the things a Bulk does: all of it, or none when one of its
// comparisons fails.
type Part struct {
	Guards []Guard
	Writes []Write
}

// Size is the number of comparisons, which is at least that of writes.
func (p Part) Size() int { return len(p.Guards) + len(p.Writes) }

// Bulk is many independent parts in one request and at one revision. The fences
// hold for all of them: with one lost, nothing happens. Other than that a part
// whose comparison fails takes no other with it. No key may be written by two parts.
type Bulk struct {
	// Fences are the ownerships the parts are made under.
	Fences []Fence
	Parts  []Part
}

// BulkLimits are how many parts a Bulk may have, and how many comparisons each of
// them. It may have one fence less than parts. etcd counts the longest way through
// a transaction and those inside it, so both together are its limit.
func (c *Client) BulkLimits() (parts, size int) { return c.maxOps / 2, c.maxOps - c.maxOps/2 }

// CommitBulk performs a Bulk. done says of each part whether it happened, at
// revision rev; where none did, rev is the revision at which they were compared.
// Errors, after which done is nil: Fenced when an ownership was lost, and nothing
// happened; TooLarge past BulkLimits or etcd's limit on a request; Unavailable when the
// outcome is unknown or etcd is away. Unlike Commit it does not look whether a bulk with
// a lost answer happened: who needs to know moves what its parts compare, then looks.
func (c *Client) CommitBulk(ctx context.Context, b Bulk) (done []bool, rev int64, err error) {
	identity := c.line.identity()
	outer := Txn{Fences: b.Fences}
	cmps, _, probes, err := outer.build()
	if err != nil {
		return nil, 0, errs.Wrap("store.CommitBulk", err)
	}
	if identity != "" {
		cmps = append(cmps, clientv3.Compare(clientv3.Value(MetaKey().String()), "=", identity))
		probes = append(probes, clientv3.OpGet(MetaKey().String()))
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

// refusal says why a transaction did not happen: a lost comparison, or that etcd
// is not the one that was joined.
func (c *Client) refusal(t Txn, resp *clientv3.TxnResponse, identity string) error {
	err := t.explain(resp)
	if identity != "" && !errs.Is(err, errs.Fenced) { // a lost ownership needs no further reason
		last := resp.Responses[len(resp.Responses)-1].GetResponseRange()
		if foreign := c.judge(last.GetKvs()); foreign != nil {
			return errs.Wrap("store.Commit", foreign)
		}
	}
	return err
}

// buildParts makes one transaction of each part, to be made inside another with so
// many comparisons. They have no reads for the case that a comparison fails: whoever
// is refused looks at the state again.
func (c *Client) buildParts(parts []Part, cmps int) ([]clientv3.Op, error) {
	limit, size := c.BulkLimits()
	if len(parts) > limit || cmps > limit {
		return nil, errs.As(errs.TooLarge, "store.buildParts", fmt.Errorf("%d parts and %d comparisons, the limit of each is %d", len(parts), cmps, limit))
	}
	ops := make([]clientv3.Op, 0, len(parts))
	for _, p := range parts {
		if p.Size() > size {
			return nil, errs.As(errs.TooLarge, "store.buildParts", fmt.Errorf("%d comparisons in a part, the limit is %d", p.Size(), size))
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
