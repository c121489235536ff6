package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mrand "math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Client speaks to one etcd cluster. It is safe for concurrent use.
type Client struct {
	etcd   *clientv3.Client
	log    *slog.Logger
	maxOps int
	seed   uint64
	line   *timeline
	// streams counts those that watches have for themselves.
	streams atomic.Uint64
	// contact says whether etcd is there; its endpoints are Dial's.
	contact *contact
	// secret is the cluster secret; fingerprint is the one that it was last found to match.
	secret      string
	fingerprint atomic.Pointer[fleet.SecretFingerprint]
	// hedges are connections to one endpoint each; see endpointConns.
	hedges []*grpc.ClientConn
}

// DefaultMaxOps is etcd's own limit on comparisons, and on writes, per transaction.
const DefaultMaxOps = 128

// Options tune a Client. The zero value is usable.
type Options struct {
	// MaxOps is the server's --max-txn-ops. 0 means DefaultMaxOps.
	MaxOps int
	// Log receives what an operator may want to know. Nil discards.
	Log *slog.Logger
	// Seed decides the random pauses of watches. 0 means a random one.
	Seed uint64
	// Secret is the cluster secret. Join refuses a cluster that has another. Empty: it is not compared.
	Secret string
}

// New wraps an etcd client the caller made and will close: how standalone hands
// over its in-process client.
func New(etcd *clientv3.Client, o Options) *Client {
	c := newClient(o)
	c.etcd = etcd
	return c
}

func newClient(o Options) *Client {
	if o.MaxOps == 0 {
		o.MaxOps = DefaultMaxOps
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for o.Seed == 0 {
		o.Seed = mrand.Uint64()
	}
	return &Client{log: o.Log, maxOps: o.MaxOps, seed: o.Seed, secret: o.Secret, line: newTimeline(), contact: &contact{log: o.Log}}
}

// reconnect keeps on trying at short intervals, however long etcd was away: a fleet
// that waits for its store must not sleep through its return.
func reconnect() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 3 * time.Second,
	})
}

// Dial connects to an etcd cluster over the network; Close ends it.
func Dial(endpoints []string, o Options) (*Client, error) {
	c := newClient(o)
	c.contact.endpoints = endpoints
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		AutoSyncInterval:     0,
		Logger:               zap.NewNop(), // it warns about every retried call; callers log what matters
		DialOptions:          []grpc.DialOption{reconnect(), grpc.WithChainStreamInterceptor(c.vetStream)},
	})
	if err != nil {
		return nil, errs.As(errs.Invalid, "store.Dial", fmt.Errorf("endpoints %v: %w", endpoints, err))
	}
	c.etcd = cli
	if err := c.endpointConns(endpoints); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection. Only for clients made by Dial.
func (c *Client) Close() error {
	defer c.contact.stop()
	c.closeEndpointConns()
	return c.etcd.Close()
}

// MaxOps is the number of comparisons, and of writes, one transaction may hold.
// One comparison more is the store's own: that etcd is the one that was joined.
func (c *Client) MaxOps() int { return c.maxOps - 1 }

// Ping asks etcd for a linearizable read; an error is Unavailable, also when this
// is not the etcd that was joined.
func (c *Client) Ping(ctx context.Context) error { return errs.Wrap("store.Ping", c.vet(ctx)) }

// Revision is etcd's current revision, read linearizably.
func (c *Client) Revision(ctx context.Context) (int64, error) {
	resp, err := c.get(ctx, MetaKey().String(), clientv3.WithCountOnly())
	if err != nil {
		return 0, wrap("store.Revision", err)
	}
	return resp.Header.Revision, nil
}

// get is a linearizable read whose answer is compared with what was seen before.
func (c *Client) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	before := c.line.now()
	resp, err := c.etcd.Get(ctx, key, opts...)
	if err == nil {
		c.saw(before, resp.Header)
	}
	return resp, err
}

// Join makes sure the cluster's keys are of a schema this build knows, writing
// the meta record when it is the first. Conflict when the schema is newer, or when
// the cluster has another secret than Options.Secret.
//
// It binds the client to the cluster: from then on, and until it joins again, it
// neither writes to another one nor follows it; see ForeignError.
func (c *Client) Join(ctx context.Context, now time.Time) (fleet.Meta, error) {
	answered := c.contact.asking()
	meta, err := c.join(ctx, now)
	answered(err)
	return meta, err
}

func (c *Client) join(ctx context.Context, now time.Time) (fleet.Meta, error) {
	resp, err := c.get(ctx, MetaKey().String()) // first, since an etcd without space refuses all transactions that may write
	if err != nil {
		return fleet.Meta{}, wrap("store.Join", err)
	}
	if len(resp.Kvs) == 0 {
		fresh := fleet.Meta{Schema: Schema, ClusterID: rand.Text(), CreatedAt: now.UTC()}
		_, err := c.commit(ctx, Txn{Writes: []Write{Create(MetaKey(), fresh)}}, "")
		if err != nil && !errs.Is(err, errs.AlreadyExists) {
			return fleet.Meta{}, errs.Wrap("store.Join", err)
		}
		if resp, err = c.get(ctx, MetaKey().String()); err != nil {
			return fleet.Meta{}, wrap("store.Join", err)
		}
	}
	if len(resp.Kvs) == 0 {
		return fleet.Meta{}, errs.New(errs.Unavailable, "the record %s was removed while it was read", MetaKey())
	}
	meta, err := Decode[fleet.Meta](raw(resp.Kvs[0]))
	if err != nil {
		return fleet.Meta{}, errs.Wrap("store.Join", err)
	}
	if meta.Schema > Schema {
		return meta, newerSchema(meta)
	}
	if err := c.checkSecret(ctx, meta); err != nil {
		return fleet.Meta{}, errs.Wrap("store.Join", err)
	}
	c.adopt(meta, string(resp.Kvs[0].Value))
	return meta, nil
}

// ErrUnreachable marks the errors of calls that etcd did not answer: the connection failed or
// closed, the time ran out, or etcd has no leader. A write may have happened.
var ErrUnreachable = errors.New("etcd does not answer")

// unreachable reports whether an error of the etcd client means that etcd did not answer.
func unreachable(err error) bool {
	code := status.Code(err)
	var fromEtcd rpctypes.EtcdError
	if errors.As(err, &fromEtcd) {
		code = fromEtcd.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF)
}

// wrap gives etcd's errors a Kind, and marks them with ErrUnreachable.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errs.As(errs.Canceled, op, err)
	case unreachable(err):
		return errs.As(errs.Unavailable, op, fmt.Errorf("%w: %w", ErrUnreachable, err))
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrAuthFailed):
		return errs.As(errs.Denied, op, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		return errs.As(errs.TooLarge, op, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return errs.As(errs.Exhausted, op, err)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return errs.As(errs.Fenced, op, err)
	}
	s, ok := status.FromError(err)
	switch {
	case ok && s.Code() == codes.Canceled:
		return errs.As(errs.Canceled, op, err)
	case ok && s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max"): // gRPC's own limit, of client or server
		return errs.As(errs.TooLarge, op, err)
	}
	return errs.As(errs.Unavailable, op, err)
}
