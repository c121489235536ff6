package operate

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
)

// shared is a lease that the records of some time stand on together, so that a record does
// not cost one. The zero value is ready for use.
type shared struct {
	// together is how long records are put on the same lease: as much longer may each stay.
	together time.Duration

	mu    sync.Mutex
	lease store.Lease
	until time.Time // zero: there is none
}

// on performs a write with a lease that lasts for life at least. One that has ended, as
// when etcd was restored from a backup, is not used again.
func (o *Operations) on(ctx context.Context, s *shared, life time.Duration, write func(store.Lease) error) error {
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

// leased is the lease, and whether it was there before.
func (o *Operations) leased(ctx context.Context, s *shared, life time.Duration) (lease store.Lease, kept bool, err error) {
	now := o.now().Round(0) // etcd counts on while this host sleeps
	s.mu.Lock()
	lease, kept = s.lease, now.Add(life).Before(s.until)
	s.mu.Unlock()
	if kept {
		return lease, true, nil
	}
	if lease, err = o.cfg.Store.Grant(ctx, life+s.together); err != nil {
		return lease, false, errs.Wrap("operate.leased", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease, s.until = lease, now.Add(life+s.together)
	return lease, false, nil
}

// forget has the next record ask for another lease.
func (s *shared) forget(lease store.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == lease {
		s.until = time.Time{}
	}
}
