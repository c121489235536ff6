package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// Stream is a stream of frames from an agent. The caller closes it.
type Stream[T any] struct {
	body io.ReadCloser
	in   *json.Decoder
}

// stream opens a stream at a path. Errors are the agent's, or Unavailable if it does not
// answer.
func stream[T any](ctx context.Context, c *Client, path string) (*Stream[T], error) {
	resp, err := wire.Send(ctx, c.http, wire.Request{Method: http.MethodGet, URL: c.base + path, Token: c.secret})
	if err != nil {
		return nil, err
	}
	return &Stream[T]{resp.Body, json.NewDecoder(resp.Body)}, nil
}

// Next waits for the next frame. Unavailable if the stream was interrupted.
func (s *Stream[T]) Next() (T, error) {
	var f T
	return f, errs.WrapAs(errs.Unavailable, "nodeagent.Next", s.in.Decode(&f))
}

// Close ends the stream.
func (s *Stream[T]) Close() error { return s.body.Close() }
