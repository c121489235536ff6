package store

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// The watches of a client share a stream, and etcd reports the progress of all watches of a stream
// in one answer. The answer may be older than a newly added watch, and still arrive after the
// confirmation of that watch. The new watch would then take it for its own and drop earlier events as duplicates.
// Therefore a watch that requests its progress has its own stream, and no progress is requested on
// the shared one.

// streamHeader distinguishes the streams of a client. etcd ignores it.
const streamHeader = "orrery-stream"

// newStream returns a unique stream name.
func (c *Client) newStream() string { return strconv.FormatUint(c.streams.Add(1), 10) }

// onStream makes a watch and its progress requests use a stream; "" is the shared one. Both end
// when etcd's member has no leader.
func onStream(ctx context.Context, name string) context.Context {
	if name != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, streamHeader, name)
	}
	return clientv3.WithRequireLeader(ctx)
}

// awaitEnd returns when a cancelled watch has left its stream, or ctx ends. The next watch on the
// stream must not receive answers meant for this one.
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

// ask requests the progress of the watch.
func (f *follower) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_ = f.client.etcd.RequestProgress(ctx) // callers that still wait ask again
}
