package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// DefaultTTL is how long a session outlives its last keep-alive.
const DefaultTTL = 10 * time.Second

// Session is one process' liveness: a lease and the keys that live on it. It
// ends when it is closed, when its lease expires, or when keep-alives could not
// be confirmed for a whole TTL, measured on the monotonic clock from before the
// last confirmed one was sent.
type Session struct {
	client *Client
	lease  clientv3.LeaseID
	ttl    time.Duration
	fence  Fence

	cancel context.CancelFunc
	done   chan struct{}
	hurry  chan struct{}

	mu       sync.Mutex
	deadline time.Time // a TTL after the last confirmed keep-alive was sent
	renewed  chan struct{}
}

// Confirmed is when the last confirmed keep-alive was sent, or the lease asked for.
func (s *Session) Confirmed() time.Time { return s.Deadline().Add(-s.ttl) }

// OpenSession grants a lease of ttl, counted in whole seconds by etcd, and creates
// key on it. AlreadyExists when somebody
// else's session lives under the key. Takeover first revokes the lease that holds
// the key: for whoever can prove to be the same owner by other means. beside makes, with
// the TTL that etcd granted, what the same transaction compares and writes as well. Other
// errors as of Commit.
func OpenSession[T any](ctx context.Context, c *Client, k Key[T], v T, ttl time.Duration, takeover bool, beside ...func(granted time.Duration) Txn) (*Session, error) {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if takeover {
		if err := c.revokeHolder(ctx, k.String(), 0); err != nil {
			return nil, errs.Wrap("store.OpenSession", err)
		}
	}
	sent := time.Now()
	lease, err := c.etcd.Grant(ctx, max(1, int64(ttl/time.Second)))
	if err != nil {
		return nil, wrap("store.OpenSession", err)
	}
	granted := time.Duration(lease.TTL) * time.Second
	w := Create(k, v)
	w.lease = lease.ID
	txn := Txn{Writes: []Write{w}}
	for _, with := range beside {
		more := with(granted)
		txn.Guards, txn.Writes = append(txn.Guards, more.Guards...), append(txn.Writes, more.Writes...)
	}
	rev, err := c.Commit(ctx, txn)
	if err != nil {
		c.revoke(ctx, lease.ID)
		return nil, errs.Wrap("store.OpenSession", err)
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Session{
		client: c, lease: lease.ID, ttl: granted,
		fence: FenceOf(k, rev), cancel: cancel, done: make(chan struct{}), renewed: make(chan struct{}), hurry: make(chan struct{}, 1),
	}
	s.deadline = sent.Add(s.ttl)
	go s.keepAlive(runCtx)
	return s, nil
}

// ResumeSession keeps the session alive whose key was created at a revision: for a
// successor that holds proof that its owner is dead, and cannot open a session of its own.
// The epoch stays. NotFound when the session is over.
func ResumeSession[T any](ctx context.Context, c *Client, k Key[T], created int64) (*Session, error) {
	const op = "store.ResumeSession"
	resp, err := c.get(ctx, k.String()) // not keys-only: that leaves the lease out
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
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Session{
		client: c, lease: lease, ttl: time.Duration(kept.TTL) * time.Second,
		fence: FenceOf(k, created), cancel: cancel, done: make(chan struct{}), renewed: make(chan struct{}), hurry: make(chan struct{}, 1),
	}
	s.deadline = sent.Add(s.ttl)
	go s.keepAlive(runCtx)
	return s, nil
}

// CanGrant reports whether etcd grants leases now: Exhausted while it has no space. It
// tries one, and gives that back.
func (c *Client) CanGrant(ctx context.Context) error {
	lease, err := c.etcd.Grant(ctx, 1)
	if err != nil {
		return wrap("store.CanGrant", err)
	}
	c.revoke(ctx, lease.ID)
	return nil
}

// Fence proves this session; its Epoch is the session key's create-revision.
func (s *Session) Fence() Fence { return s.fence }

// Done is closed when the session is over, for whatever reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Deadline is a TTL after the last confirmed keep-alive was sent. etcd may end the session
// before it, but its key existed a TTL before it or later.
func (s *Session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline
}

// Hurry makes the session renew now. Renewed tells of the result.
func (s *Session) Hurry() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// Renewed is closed when the Deadline moves on the next time; ask again after that.
func (s *Session) Renewed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

// OnSession puts another key on the session's lease, so that it goes with it.
func OnSession[T any](s *Session, k Key[T], v T) Write {
	w := Create(k, v)
	w.lease = s.lease
	return w
}

// CreateFor writes a key that must not exist and goes by itself after ttl, counted
// in whole seconds by etcd: for records nobody has to clean up. Errors as of Commit.
func CreateFor[T any](ctx context.Context, c *Client, k Key[T], v T, ttl time.Duration) error {
	lease, err := c.Grant(ctx, ttl)
	if err != nil {
		return errs.Wrap("store.CreateFor", err)
	}
	if _, err := c.Commit(ctx, Txn{Writes: []Write{CreateOn(lease, k, v)}}); err != nil {
		c.revoke(ctx, lease.id)
		return errs.Wrap("store.CreateFor", err)
	}
	return nil
}

// Lease is a span of time that nobody renews. The keys put on it go by themselves at its
// end: many of about the same age may share one.
type Lease struct{ id clientv3.LeaseID }

// Grant begins a lease of ttl, counted in whole seconds by etcd. Unavailable when etcd
// does not answer.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	lease, err := c.etcd.Grant(ctx, max(1, int64(ttl/time.Second)))
	if err != nil {
		return Lease{}, wrap("store.Grant", err)
	}
	return Lease{lease.ID}, nil
}

// CreateOn writes a key that must not exist and goes with a lease. Once that has ended,
// a transaction with such a write is Fenced, without a LostError.
func CreateOn[T any](l Lease, k Key[T], v T) Write { return ReplaceOn(l, k, v, 0) }

// ReplaceOn is CreateOn for a key that must still be at modRev. It leaves the lease it was on.
func ReplaceOn[T any](l Lease, k Key[T], v T, modRev int64) Write {
	w := Replace(k, v, modRev)
	w.lease = l.id
	return w
}

// Close ends the session at once by revoking its lease; its keys go with it.
// When etcd does not answer, they go at the TTL.
func (s *Session) Close(ctx context.Context) {
	s.cancel()
	<-s.done
	s.client.revoke(ctx, s.lease)
}

// Abandon stops renewing without revoking: what a crash looks like to others.
func (s *Session) Abandon() {
	s.cancel()
	<-s.done
}

// RevokeSession ends a session that was looked at: the one whose key was created at a
// revision. Another one that holds the key by now is left alone, which is no error.
func RevokeSession[T any](ctx context.Context, c *Client, k Key[T], created int64) error {
	return errs.Wrap("store.RevokeSession", c.revokeHolder(ctx, k.String(), created))
}

// revokeHolder ends the session under a key; only the one created at a revision, unless that is 0.
func (c *Client) revokeHolder(ctx context.Context, key string, created int64) error {
	resp, err := c.etcd.Get(ctx, key) // not keys-only: that leaves the lease out
	if err != nil {
		return wrap("store.revokeHolder", err)
	}
	if len(resp.Kvs) == 0 || resp.Kvs[0].Lease == 0 || created != 0 && resp.Kvs[0].CreateRevision != created {
		return nil
	}
	_, err = c.etcd.Revoke(ctx, clientv3.LeaseID(resp.Kvs[0].Lease))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return wrap("store.revokeHolder", err)
}

func (c *Client) revoke(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := c.endLease(ctx, lease); err != nil {
		c.log.Warn("lease not revoked, its keys stay until it expires", "lease", lease, "error", err)
	}
}

// endLease revokes a lease. One that is gone already is no error.
func (c *Client) endLease(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := c.etcd.Revoke(ctx, lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return wrap("store.endLease", err)
}
