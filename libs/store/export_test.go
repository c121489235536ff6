package store

import (
	"context"

	"google.golang.org/grpc"
)

// OpenWatch opens the stream of a watch by other means than the network.
func (c *Client) OpenWatch(ctx context.Context, open grpc.Streamer) error {
	_, err := c.vetStream(ctx, nil, nil, watchMethod, open)
	return err
}

// MemberWarnings is memberWarnings.
var MemberWarnings = memberWarnings

// Wrap is wrap.
var Wrap = wrap
