package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// progressEvery is how often a history read asks how far its watch has come.
const progressEvery = 20 * time.Millisecond

// CompactedError says that a part of history is gone.
type CompactedError struct {
	// From is the revision that was asked for.
	From int64
}

// Error names the revision.
func (e *CompactedError) Error() string {
	return fmt.Sprintf("the history after revision %d is compacted", e.From)
}

// Compacted reports whether err says that the history asked for is gone.
func Compacted(err error) bool {
	var e *CompactedError
	return errors.As(err, &e)
}

// History delivers the past: the state under a prefix at revision from (which
// must be at least 1), then every change after it up to revision to, and returns.
// NotFound with a CompactedError when that history is gone, at the start or while
// it is read. Invalid when from is not reached yet.
func (c *Client) History(ctx context.Context, prefix string, from, to int64, h Handler) error {
	kvs, _, err := c.list(ctx, prefix, from, c.get)
	if err != nil {
		return historyError(from, err)
	}
	h.Reset(kvs, from)
	if from >= to {
		return nil
	}
	ctx, cancel := context.WithCancel(onStream(ctx, c.newStream()))
	defer cancel() // releases the server's side of the watch
	f := follower{client: c, prefix: prefix, handler: h, rev: from}
	return historyError(from, f.until(ctx, to))
}

// until delivers changes up to a revision. The prefix may have none at that very
// revision, so it asks for progress along the way.
func (f *follower) until(ctx context.Context, to int64) error {
	stream := f.client.etcd.Watch(ctx, f.prefix, clientv3.WithPrefix(), clientv3.WithRev(f.rev+1), clientv3.WithFragment())
	ask := time.NewTicker(progressEvery)
	defer ask.Stop()
	for f.rev < to {
		select {
		case <-ask.C:
			if err := f.client.etcd.RequestProgress(ctx); err != nil {
				return err
			}
		case resp, ok := <-stream:
			if !ok {
				return errors.Join(ctx.Err(), errors.New("the watch ended early"))
			}
			if err := resp.Err(); err != nil {
				return err
			}
			f.deliverUpTo(&resp, to)
		}
	}
	return nil
}

// deliverUpTo is deliver without what came after a revision.
func (f *follower) deliverUpTo(resp *clientv3.WatchResponse, to int64) {
	complete := resp.IsProgressNotify() && resp.Header.Revision >= to
	if i := slices.IndexFunc(resp.Events, func(ev *clientv3.Event) bool { return ev.Kv.ModRevision > to }); i >= 0 {
		resp.Events, complete = resp.Events[:i], true
	}
	if len(resp.Events) > 0 || !complete {
		f.deliver(resp)
	}
	if complete && f.rev < to {
		f.rev = to
		f.handler.Apply(nil, to)
	}
}

func historyError(from int64, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrCompacted):
		return errs.As(errs.NotFound, "store.History", &CompactedError{From: from})
	case errors.Is(err, rpctypes.ErrFutureRev):
		return errs.As(errs.Invalid, "store.History", err)
	}
	return wrap("store.History", err)
}
