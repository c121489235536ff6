package store

import (
	"context"

	"google.golang.org/grpc"
)

// OpenWatch opens the stream of a watch with open instead of the network and receives its first
// response.
func (c *Client) OpenWatch(ctx context.Context, open grpc.Streamer) error {
	stream, err := c.vetStream(ctx, nil, nil, watchMethod, open)
	if err != nil {
		return err
	}
	return stream.RecvMsg(nil)
}

// Wrap is wrap.
var Wrap = wrap
