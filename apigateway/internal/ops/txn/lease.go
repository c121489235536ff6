package txn

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// SharedLease is a lease that several records share, which saves a lease per record. Set Together
// before use.
type SharedLease struct {
	// Together is how long records share one lease. It is also how much longer than needed a record may
	// be kept.
	Together time.Duration

	mu    sync.Mutex
	lease store.Lease
	until time.Time // zero without a lease
}

// OnLease calls write with a lease that lasts for life at least. When the lease has ended, for
// example because etcd was restored from a backup, it calls write again with a new one.
func (o *Committer) OnLease(ctx context.Context, s *SharedLease, life time.Duration, write func(store.Lease) error) error {
	lease, kept, err := o.leased(ctx, s, life)
	if err != nil {
		return err
	}
	err = write(lease)
	if !kept || !errs.Is(err, errs.Fenced) {
		return err
	}
	s.forget(lease)
	if lease, _, err = o.leased(ctx, s, life); err != nil {
		return err
	}
	return write(lease)
}

// MutateOnLease is Mutate for a change with records on a shared lease that lasts for life at least.
func (o *Committer) MutateOnLease(ctx context.Context, by Actor, l *SharedLease, life time.Duration, decide func(*view.Snapshot, store.Lease) (Change, error)) error {
	return InTime(ctx, func(ctx context.Context) error {
		return o.OnLease(ctx, l, life, func(lease store.Lease) error {
			_, err := o.MutateWithin(ctx, by, func(s *view.Snapshot) (Change, error) { return decide(s, lease) })
			return err
		})
	})
}

// leased returns the lease, and whether it existed before.
func (o *Committer) leased(ctx context.Context, s *SharedLease, life time.Duration) (lease store.Lease, kept bool, err error) {
	now := o.Now().Round(0) // without the monotonic clock, which stops while this host sleeps; etcd's does not
	s.mu.Lock()
	lease, kept = s.lease, now.Add(life).Before(s.until)
	s.mu.Unlock()
	if kept {
		return lease, true, nil
	}
	if lease, err = o.Store.Grant(ctx, life+s.Together); err != nil {
		return lease, false, errs.Wrap("operate.leased", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease, s.until = lease, now.Add(life+s.Together)
	return lease, false, nil
}

// forget makes the next record use a new lease.
func (s *SharedLease) forget(lease store.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == lease {
		s.until = time.Time{}
	}
}
