package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
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
}

// DefaultMaxOps is etcd's own limit on comparisons, and on writes, per transaction.
const DefaultMaxOps = 128

// Options tune a Client. The zero value is usable.
type Options struct {
	// MaxOps is the server's --max-txn-ops. 0 means DefaultMaxOps.
	MaxOps int
	// Log receives what an operator may want to know. Nil discards.
	Log *slog.Logger
}

// New wraps an etcd client the caller made and will close: how standalone hands
// over its in-process client.
func New(etcd *clientv3.Client, o Options) *Client {
	if o.MaxOps == 0 {
		o.MaxOps = DefaultMaxOps
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{etcd: etcd, log: o.Log, maxOps: o.MaxOps}
}

// reconnect keeps on trying at short intervals, however long etcd was away: a fleet
// that waits for its store must not sleep through its return.
func reconnect() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: 3 * time.Second,
	})
}

// Dial connects to an etcd cluster over the network; Close ends it.
func Dial(endpoints []string, o Options) (*Client, error) {
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		AutoSyncInterval:     0,
		DialOptions:          []grpc.DialOption{reconnect()},
		Logger:               zap.NewNop(), // it warns about every retried call; callers log what matters
	})
	if err != nil {
		return nil, errs.As(errs.Invalid, "store.Dial", fmt.Errorf("endpoints %v: %w", endpoints, err))
	}
	return New(cli, o), nil
}

// Close ends the connection. Only for clients made by Dial.
func (c *Client) Close() error { return c.etcd.Close() }

// MaxOps is the number of comparisons, and of writes, one transaction may hold.
func (c *Client) MaxOps() int { return c.maxOps }

// Ping asks etcd for a linearizable read; an error is Unavailable.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.etcd.Get(ctx, MetaKey().String(), clientv3.WithCountOnly())
	return wrap("store.Ping", err)
}

// Revision is etcd's current revision, read linearizably.
func (c *Client) Revision(ctx context.Context) (int64, error) {
	resp, err := c.etcd.Get(ctx, MetaKey().String(), clientv3.WithCountOnly())
	if err != nil {
		return 0, wrap("store.Revision", err)
	}
	return resp.Header.Revision, nil
}

// Join makes sure the cluster's keys are of a schema this build knows, writing
// the meta record when it is the first. Conflict when the schema is newer.
func (c *Client) Join(ctx context.Context, now time.Time) (fleet.Meta, error) {
	fresh := fleet.Meta{Schema: Schema, ClusterID: rand.Text(), CreatedAt: now.UTC()}
	_, err := c.Commit(ctx, Txn{Writes: []Write{Create(MetaKey(), fresh)}})
	if err != nil && !errs.Is(err, errs.AlreadyExists) {
		return fleet.Meta{}, errs.Wrap("store.Join", err)
	}
	meta, err := Get(ctx, c, MetaKey())
	if err != nil {
		return fleet.Meta{}, errs.Wrap("store.Join", err)
	}
	if meta.Schema > Schema {
		return meta, &errs.Error{Op: "store.Join", Kind: errs.Conflict, Message: fmt.Sprintf(
			"this etcd holds schema %d, newer than the %d this build knows: run a newer build", meta.Schema, Schema)}
	}
	return meta, nil
}

// wrap gives etcd's errors a Kind.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errs.As(errs.Canceled, op, err)
	case errors.Is(err, context.DeadlineExceeded):
		return errs.As(errs.Unavailable, op, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrAuthFailed):
		return errs.As(errs.Denied, op, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		return errs.As(errs.TooLarge, op, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return errs.As(errs.Exhausted, op, err)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return errs.As(errs.Fenced, op, err)
	}
	if s, ok := status.FromError(err); ok && s.Code() == codes.Canceled {
		return errs.As(errs.Canceled, op, err)
	}
	return errs.As(errs.Unavailable, op, err)
}
