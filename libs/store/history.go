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

// progressEvery is the interval at which a history read requests the progress of its watch.
const progressEvery = 20 * time.Millisecond

// CompactedError means that a part of the history is gone.
type CompactedError struct {
	// From is the requested revision.
	From int64
}

// Error implements error.
func (e *CompactedError) Error() string {
	return fmt.Sprintf("the history after revision %d is compacted", e.From)
}

// Compacted reports whether err means that the requested history is gone.
func Compacted(err error) bool {
	var e *CompactedError
	return errors.As(err, &e)
}

// History delivers the state under a prefix at revision from (at least 1), then every change after
// it up to revision to, and returns. The error is NotFound with a CompactedError if that history
// is gone, and Invalid if from is in the future.
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

// until delivers changes up to a revision. The prefix may not change at that revision, so it
// requests the progress regularly.
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

// deliverUpTo is deliver without the changes after a revision.
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
		return errs.WrapAs(errs.NotFound, "store.History", &CompactedError{From: from})
	case errors.Is(err, rpctypes.ErrFutureRev):
		return errs.WrapAs(errs.Invalid, "store.History", err)
	}
	return wrap("store.History", err)
}
