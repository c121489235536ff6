package txn

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
)

// Each carries out one request that concerns n objects. It calls do for each index in order, at most
// atOnce at a time. A failure does not stop the others: failed has the result of each object at its
// index. When ctx ends, the objects that were not begun fail as Exhausted.
//
// A request with an idempotency key is recorded once, as whole, before the first object. Each releases
// it when certainly nothing was done. When err is not nil, nothing was done; it is an error of Claim.
func (o *Committer) Each(ctx context.Context, whole Entry, n, atOnce int, do func(ctx context.Context, k int) error) (failed []error, err error) {
	if n == 0 {
		return nil, nil
	}
	if err := o.Claim(ctx, whole); err != nil {
		return nil, err
	}
	failed = make([]error, n)
	one := TellingInTurn(WithoutOnce(ctx))
	var all errgroup.Group
	all.SetLimit(atOnce)
	for k := range n {
		all.Go(func() error {
			if ctx.Err() != nil {
				failed[k] = errs.New(errs.Exhausted, "there was no time left for it: nothing was done")
				return nil
			}
			failed[k] = do(one, k)
			return nil
		})
	}
	_ = all.Wait() // no function returns an error
	for _, err := range failed {
		if err == nil || !upstream.NotDone(err) {
			return failed, nil
		}
	}
	o.Unclaim(ctx)
	return failed, nil
}
