package store

import (
	"context"
	"crypto/rand"
	"crypto/tls"
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
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/handshake"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Client accesses one etcd cluster. It is safe for concurrent use.
type Client struct {
	etcd   *clientv3.Client
	log    *slog.Logger
	maxOps int
	seed   uint64
	line   *timeline
	// streams counts the watches with their own stream.
	streams atomic.Uint64
	// contact tracks whether etcd is reachable. Its endpoints are those of Dial.
	contact *contact
	// secret is the cluster secret. fingerprint is the one it last matched.
	secret      string
	fingerprint atomic.Pointer[cluster.SecretFingerprint]
	// hedges are connections to single endpoints; see endpointConns.
	hedges []*grpc.ClientConn
}

// DefaultMaxOps is etcd's default limit of comparisons, and of writes, per transaction.
const DefaultMaxOps = 128

// Options configures a Client. The zero value is usable.
type Options struct {
	// MaxOps is the server's --max-txn-ops. 0 means DefaultMaxOps.
	MaxOps int
	// Log receives messages for operators. It may be nil.
	Log *slog.Logger
	// Seed is the seed of the random pauses of watches. 0 means a random one.
	Seed uint64
	// TLS encrypts the connections. All endpoints must then begin with https://. Nil encrypts those that
	// do, with the defaults.
	TLS *tls.Config
	// Username and Password log in to etcd. With them Dial fails with Unavailable while etcd does not
	// answer, and with Denied if it does not accept them. Empty means no login.
	Username, Password string
	// Secret is the cluster secret. Join refuses a cluster with another one. Empty skips the
	// check.
	Secret string
}

// New wraps an existing etcd client, which the caller closes. standalone uses it for its
// in-process etcd.
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

// reconnect retries at short intervals regardless of how long etcd was away, so that the fleet
// notices quickly when it is back.
func reconnect() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 3 * time.Second,
	})
}

// Dial connects to an etcd cluster over the network. Close ends the connection.
func Dial(endpoints []string, o Options) (*Client, error) {
	c := newClient(o)
	c.contact.endpoints = endpoints
	dial := []grpc.DialOption{reconnect(), grpc.WithChainStreamInterceptor(c.vetStream)}
	if o.TLS != nil {
		dial = append(dial, handshake.Credentials(o.TLS, &c.contact.refusal))
	}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  o.TLS,
		Username:             o.Username,
		Password:             o.Password,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		AutoSyncInterval:     0,
		Logger:               zap.NewNop(), // it warns about every retried call; callers log what matters
		DialOptions:          dial,
	})
	switch {
	case err != nil && o.Username != "": // the client has logged in
		return nil, errs.Wrap("store.Dial", wrap("login as "+o.Username, err))
	case err != nil:
		return nil, errs.WrapAs(errs.Invalid, "store.Dial", fmt.Errorf("endpoints %v: %w", endpoints, err))
	}
	c.etcd = cli
	if err := c.endpointConns(endpoints); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection of a client created by Dial.
func (c *Client) Close() error {
	defer c.contact.stop()
	for _, conn := range c.hedges {
		_ = conn.Close()
	}
	return c.etcd.Close()
}

// Conn returns the connection to etcd; nil in the process of etcd.
func (c *Client) Conn() *grpc.ClientConn { return c.etcd.ActiveConnection() }

// MaxOps returns the most comparisons, and writes, of a transaction. The store itself uses one more.
func (c *Client) MaxOps() int { return c.maxOps - 1 }

// Ping does a linearizable read. The error is Unavailable, also if this is not the etcd that was
// joined.
func (c *Client) Ping(ctx context.Context) error { return errs.Wrap("store.Ping", c.vet(ctx)) }

// Revision returns etcd's current revision with a linearizable read.
func (c *Client) Revision(ctx context.Context) (int64, error) {
	resp, err := c.get(ctx, keys.Meta().String(), clientv3.WithCountOnly())
	if err != nil {
		return 0, wrap("store.Revision", err)
	}
	return resp.Header.Revision, nil
}

// get is a linearizable read whose answer is checked against the known timeline.
func (c *Client) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	before := c.line.now()
	resp, err := c.etcd.Get(ctx, key, opts...)
	if err == nil {
		c.saw(before, resp.Header)
	}
	return resp, err
}

// Join checks that this build supports the schema of the cluster's keys, and writes the meta
// record if it does not exist. The error is Conflict if the schema is newer or the cluster has a
// different secret than Options.Secret.
//
// It binds the client to the cluster: until the next Join it neither writes to another cluster nor
// follows it; see ForeignError.
func (c *Client) Join(ctx context.Context, now time.Time) (cluster.Meta, error) {
	answered := c.contact.asking()
	meta, err := c.join(ctx, now)
	answered(err)
	return meta, err
}

func (c *Client) join(ctx context.Context, now time.Time) (cluster.Meta, error) {
	resp, err := c.get(ctx, keys.Meta().String()) // no transaction here: an etcd without space refuses those that may write
	if err != nil {
		return cluster.Meta{}, wrap("store.Join", err)
	}
	if len(resp.Kvs) == 0 {
		fresh := cluster.Meta{Schema: keys.Schema, ClusterID: rand.Text(), CreatedAt: now.UTC()}
		_, err := c.commit(ctx, Txn{Writes: []Write{Create(keys.Meta(), fresh)}}, "")
		if err != nil && !errs.Is(err, errs.AlreadyExists) {
			return cluster.Meta{}, errs.Wrap("store.Join", err)
		}
		if resp, err = c.get(ctx, keys.Meta().String()); err != nil {
			return cluster.Meta{}, wrap("store.Join", err)
		}
	}
	if len(resp.Kvs) == 0 {
		return cluster.Meta{}, errs.New(errs.Unavailable, "the record %s was removed during the join", keys.Meta())
	}
	meta, err := Decode[cluster.Meta](raw(resp.Kvs[0]))
	if err != nil {
		return cluster.Meta{}, errs.Wrap("store.Join", err)
	}
	if meta.Schema > keys.Schema {
		return meta, newerSchema(meta)
	}
	if err := c.checkSecret(ctx, meta); err != nil {
		return cluster.Meta{}, errs.Wrap("store.Join", err)
	}
	c.adopt(meta, string(resp.Kvs[0].Value))
	return meta, nil
}

// ErrUnreachable marks errors of calls that etcd did not answer: the connection failed or closed,
// the time ran out, or etcd has no leader. A write may have happened.
var ErrUnreachable = errors.New("etcd does not respond")

// codeOf returns the code of an error of the etcd client.
func codeOf(err error) codes.Code {
	var fromEtcd rpctypes.EtcdError
	if errors.As(err, &fromEtcd) {
		return fromEtcd.Code()
	}
	return status.Code(err)
}

// unreachable reports whether an error of the etcd client means that etcd did not respond.
func unreachable(err error) bool {
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF)
}

// wrap adds a Kind to an error of etcd and marks it with ErrUnreachable if it applies.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	switch code := codeOf(err); {
	case errors.Is(err, context.Canceled), code == codes.Canceled:
		return errs.WrapAs(errs.Canceled, op, err)
	case unreachable(err):
		return errs.WrapAs(errs.Unavailable, op, fmt.Errorf("%w: %w", ErrUnreachable, err))
	case code == codes.PermissionDenied, errors.Is(err, rpctypes.ErrAuthFailed):
		return errs.WrapAs(errs.Denied, op, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps),
		code == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"): // gRPC's own limit, of client or server
		return errs.WrapAs(errs.TooLarge, op, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return errs.WrapAs(errs.Exhausted, op, err)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return errs.WrapAs(errs.Fenced, op, err)
	}
	return errs.WrapAs(errs.Unavailable, op, err)
}
