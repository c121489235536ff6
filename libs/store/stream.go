package store

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// Watches of one client share a stream, and etcd tells how far all watches of a stream
// have come in one answer. That answer may come after the news that another watch was
// added to the stream, though it was given before: the new watch would take it for its
// own, and for repetitions all it is still to be told from before. So whoever asks has
// a stream of its own, and on the shared one nobody asks.

// streamHeader tells streams of one client apart; etcd makes nothing of it.
const streamHeader = "orrery-stream"

// newStream names a stream that no other watch has.
func (c *Client) newStream() string { return strconv.FormatUint(c.streams.Add(1), 10) }

// onStream has a watch, and questions about it, use a stream; "" is the shared one.
// Either ends when etcd's member has no leader.
func onStream(ctx context.Context, name string) context.Context {
	if name != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, streamHeader, name)
	}
	return clientv3.WithRequireLeader(ctx)
}

// awaitEnd returns when a watch that was ended has left its stream, or ctx ends: the
// next one on it must not get answers that were given to this one.
func awaitEnd(ctx context.Context, stream clientv3.WatchChan) {
	for {
		select {
		case _, ok := <-stream:
			if !ok {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// ask asks etcd how far the watch has come.
func (f *follower) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_ = f.client.etcd.RequestProgress(ctx) // who still waits asks again
}
