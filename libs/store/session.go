package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// DefaultTTL is the default TTL of a session.
const DefaultTTL = 10 * time.Second

// Session is the liveness of one process: a lease and the keys attached to it. It ends when it is
// closed, when its lease expires, or when no keep-alive was confirmed for a whole TTL. The monotonic
// clock measures that time from before the last confirmed keep-alive was sent.
type Session struct {
	client *Client
	lease  Lease
	ttl    time.Duration
	fence  Fence

	cancel context.CancelFunc
	done   chan struct{}
	hurry  chan struct{}

	mu       sync.Mutex
	deadline time.Time // a TTL after the last confirmed keep-alive was sent
	renewed  chan struct{}
}

// Confirmed returns when the last confirmed keep-alive, or the request for the lease, was sent.
func (s *Session) Confirmed() time.Time { return s.Deadline().Add(-s.ttl) }

// OpenSession grants a lease of ttl, rounded to whole seconds by etcd, and creates key with it.
// The error is AlreadyExists if another session has the key. With takeover it first revokes the
// lease of the key; the caller must have proof that the owner is gone. beside returns, for the TTL
// that etcd granted, further comparisons and writes for the same transaction. Other errors are as
// in Commit.
func OpenSession[T any](ctx context.Context, c *Client, k keys.Key[T], v T, ttl time.Duration, takeover bool, beside ...func(granted time.Duration) Txn) (*Session, error) {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if takeover {
		if err := c.revokeHolder(ctx, k.String(), 0); err != nil {
			return nil, errs.Wrap("store.OpenSession", err)
		}
	}
	sent := time.Now()
	lease, err := c.Grant(ctx, ttl)
	if err != nil {
		return nil, errs.Wrap("store.OpenSession", err)
	}
	txn := Txn{Writes: []Write{CreateOn(lease, k, v)}}
	for _, with := range beside {
		more := with(lease.ttl)
		txn.Guards, txn.Writes = append(txn.Guards, more.Guards...), append(txn.Writes, more.Writes...)
	}
	rev, err := c.Commit(ctx, txn)
	if err != nil {
		c.revoke(ctx, lease)
		return nil, errs.Wrap("store.OpenSession", err)
	}
	return c.keepSession(ctx, lease, FenceOf(k, rev), sent), nil
}

// keepSession returns a session whose lease it renews. sent is when the last confirmed keep-alive was
// sent.
func (c *Client) keepSession(ctx context.Context, lease Lease, fence Fence, sent time.Time) *Session {
	s := &Session{
		client: c, lease: lease, ttl: lease.ttl, fence: fence, deadline: sent.Add(lease.ttl),
		done: make(chan struct{}), renewed: make(chan struct{}), hurry: make(chan struct{}, 1),
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go s.keepAlive(ctx)
	return s
}

// ResumeSession continues the session whose key was created at a revision. It is for a successor
// that has proof that the owner is dead and cannot open its own session. The epoch stays the same.
// The error is NotFound if the session is over.
func ResumeSession[T any](ctx context.Context, c *Client, k keys.Key[T], created int64) (*Session, error) {
	const op = "store.ResumeSession"
	resp, err := c.get(ctx, k.String()) // keys-only reads omit the lease
	if err != nil {
		return nil, wrap(op, err)
	}
	if len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision != created || resp.Kvs[0].Lease == 0 {
		return nil, errs.New(errs.NotFound, "the session %s of revision %d is over", k, created)
	}
	lease := clientv3.LeaseID(resp.Kvs[0].Lease)
	sent := time.Now()
	kept, err := c.etcd.KeepAliveOnce(ctx, lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil, errs.New(errs.NotFound, "the session %s of revision %d is over", k, created)
	}
	if err != nil {
		return nil, wrap(op, err)
	}
	return c.keepSession(ctx, Lease{lease, time.Duration(kept.TTL) * time.Second}, FenceOf(k, created), sent), nil
}

// CanGrant reports whether etcd grants leases now. The error is Exhausted if it has no space. It
// requests a lease and revokes it.
func (c *Client) CanGrant(ctx context.Context) error {
	lease, err := c.Grant(ctx, time.Second)
	if err == nil {
		c.revoke(ctx, lease)
	}
	return errs.Wrap("store.CanGrant", err)
}

// Fence returns the fence of this session. Its Epoch is the create-revision of the session key.
func (s *Session) Fence() Fence { return s.fence }

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.done }

// Deadline returns the end of a TTL after the last confirmed keep-alive was sent. etcd may end the
// session earlier, but the key existed at least until one TTL before.
func (s *Session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline
}

// Hurry makes the session renew now. Renewed signals the success.
func (s *Session) Hurry() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// Renewed returns a channel that is closed when the Deadline moves. Call it again after that.
func (s *Session) Renewed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

// OnSession returns a write that attaches another key to the session's lease.
func OnSession[T any](s *Session, k keys.Key[T], v T) Write {
	return CreateOn(s.lease, k, v)
}

// CreateFor creates a key that expires after ttl, rounded to whole seconds by etcd. Errors are as
// in Commit.
func CreateFor[T any](ctx context.Context, c *Client, k keys.Key[T], v T, ttl time.Duration) error {
	lease, err := c.Grant(ctx, ttl)
	if err != nil {
		return errs.Wrap("store.CreateFor", err)
	}
	if _, err := c.Commit(ctx, Txn{Writes: []Write{CreateOn(lease, k, v)}}); err != nil {
		c.revoke(ctx, lease)
		return errs.Wrap("store.CreateFor", err)
	}
	return nil
}

// Lease is a lease that is not renewed. The keys attached to it expire with it. Keys of about the
// same age may share one.
type Lease struct {
	id  clientv3.LeaseID
	ttl time.Duration // as granted
}

// Grant grants a lease of ttl, rounded to whole seconds by etcd. The error is Unavailable if etcd
// does not respond.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	lease, err := c.etcd.Grant(ctx, max(1, int64(ttl/time.Second)))
	if err != nil {
		return Lease{}, wrap("store.Grant", err)
	}
	return Lease{lease.ID, time.Duration(lease.TTL) * time.Second}, nil
}

// CreateOn returns a write that creates a key with a lease. After the lease has expired, a
// transaction with such a write fails with Fenced without a LostError.
func CreateOn[T any](l Lease, k keys.Key[T], v T) Write { return ReplaceOn(l, k, v, 0) }

// ReplaceOn is CreateOn for a key that must still be at modRev. The key moves to the new lease.
func ReplaceOn[T any](l Lease, k keys.Key[T], v T, modRev int64) Write {
	w := Replace(k, v, modRev)
	w.lease = l.id
	return w
}

// Close ends the session at once by revoking its lease, which removes its keys. If etcd does not
// respond, they expire with the TTL.
func (s *Session) Close(ctx context.Context) {
	s.cancel()
	<-s.done
	s.client.revoke(ctx, s.lease)
}

// Abandon stops renewing without revoking. To others this looks like a crash.
func (s *Session) Abandon() {
	s.cancel()
	<-s.done
}

// RevokeSession ends the session whose key was created at a revision. If another session has the
// key, nothing happens and the result is nil.
func RevokeSession[T any](ctx context.Context, c *Client, k keys.Key[T], created int64) error {
	return errs.Wrap("store.RevokeSession", c.revokeHolder(ctx, k.String(), created))
}

// revokeHolder ends the session with the key, if it was created at the given revision or that is
// 0.
func (c *Client) revokeHolder(ctx context.Context, key string, created int64) error {
	resp, err := c.etcd.Get(ctx, key) // keys-only reads omit the lease
	if err != nil {
		return wrap("store.revokeHolder", err)
	}
	if len(resp.Kvs) == 0 || resp.Kvs[0].Lease == 0 || created != 0 && resp.Kvs[0].CreateRevision != created {
		return nil
	}
	return c.endLease(ctx, Lease{id: clientv3.LeaseID(resp.Kvs[0].Lease)})
}

func (c *Client) revoke(ctx context.Context, lease Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := c.endLease(ctx, lease); err != nil {
		c.log.Warn("cannot revoke a lease: its keys stay until it expires", "lease", lease.id, "error", err)
	}
}

// endLease revokes a lease. It is not an error if the lease has expired.
func (c *Client) endLease(ctx context.Context, lease Lease) error {
	_, err := c.etcd.Revoke(ctx, lease.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return wrap("store.endLease", err)
}
