package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Change is one key's change as a Follower delivers it. A removed key has no Value.
type Change struct {
	KeyValue
	Removed bool
}

// Handler receives what a Follower sees, from one goroutine, in order.
type Handler interface {
	// Reset brings everything under the prefix at one revision: at the start, and
	// again after history was compacted. Keys known before and not listed are gone.
	Reset(kvs []KeyValue, rev int64)
	// Apply brings the changes since, complete up to revision rev, none twice.
	Apply(changes []Change, rev int64)
}

// Follow lists a prefix and watches it from the next revision on, until ctx
// ends; whatever breaks in between is repaired: a lost stream resumes after the
// last delivered revision, a compacted one lists again after a jittered pause.
// It returns ctx's error.
func (c *Client) Follow(ctx context.Context, prefix string, h Handler) error {
	f := follower{client: c, prefix: prefix, handler: h}
	for ctx.Err() == nil {
		if f.rev == 0 {
			if err := f.relist(ctx); err != nil {
				f.pause(ctx, err)
				continue
			}
		}
		if err := f.watch(ctx); err != nil {
			f.pause(ctx, err)
		}
	}
	return ctx.Err()
}

type follower struct {
	client  *Client
	prefix  string
	handler Handler
	rev     int64 // all up to here was delivered; 0: list first
	fails   int
}

func (f *follower) relist(ctx context.Context) error {
	kvs, rev, err := f.client.list(ctx, f.prefix, 0)
	if err != nil {
		return err
	}
	f.handler.Reset(kvs, rev)
	f.rev = rev
	return nil
}

// watch delivers changes until the stream ends.
func (f *follower) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // releases the server's side of the watch
	stream := f.client.etcd.Watch(ctx, f.prefix,
		clientv3.WithPrefix(), clientv3.WithRev(f.rev+1), clientv3.WithProgressNotify())
	for resp := range stream {
		if err := resp.Err(); err != nil {
			if errors.Is(err, rpctypes.ErrCompacted) || resp.CompactRevision != 0 {
				f.rev = 0
			}
			return err
		}
		f.fails = 0
		f.deliver(&resp)
	}
	return ctx.Err()
}

// deliver passes on the events after f.rev; repeated ones are dropped.
func (f *follower) deliver(resp *clientv3.WatchResponse) {
	if resp.Header.Revision < f.rev && len(resp.Events) == 0 {
		return
	}
	changes := make([]Change, 0, len(resp.Events))
	last := f.rev
	for _, ev := range resp.Events {
		if ev.Kv.ModRevision <= f.rev {
			continue
		}
		changes = append(changes, Change{KeyValue: raw(ev.Kv), Removed: ev.Type == clientv3.EventTypeDelete})
		last = ev.Kv.ModRevision
	}
	if resp.IsProgressNotify() {
		last = max(last, resp.Header.Revision)
	}
	if last == f.rev {
		return
	}
	f.rev = last
	f.handler.Apply(changes, last)
}

// pause waits before the next attempt: jittered, doubling to a cap, so that a
// herd of followers does not come back as one.
func (f *follower) pause(ctx context.Context, cause error) {
	if ctx.Err() != nil {
		return
	}
	f.client.log.Warn("watch interrupted, resuming", "prefix", f.prefix, "after", f.rev, "error", cause)
	limit := min(10*time.Millisecond<<min(f.fails, 8), 2*time.Second)
	f.fails++
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(limit)) + 1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
