package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
)

// answerLimit bounds the answer Call reads.
const answerLimit = 64 << 20

// Request is one JSON call.
type Request struct {
	Method, URL string
	// Token is sent as a bearer when not empty.
	Token string
	// Body is encoded as JSON; nil sends none.
	Body any
}

// Call performs a request and decodes the answer into a value; nil drops it. An
// error keeps the Kind the server answered with; one without an answer is
// Unavailable, or Canceled when ctx was.
func Call(ctx context.Context, client *http.Client, r Request, into any) error {
	resp, err := Send(ctx, client, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, answerLimit)
	if into == nil {
		_, _ = io.Copy(io.Discard, body) // so that the connection can be used again
		return nil
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return errs.As(errs.Unavailable, "wire.Call", fmt.Errorf("%s %s: %w", r.Method, r.URL, err))
	}
	return nil
}

// Send performs a request and returns the answer when its status is below 400;
// the caller closes its body.
func Send(ctx context.Context, client *http.Client, r Request) (*http.Response, error) {
	var payload io.Reader
	if r.Body != nil {
		b, err := json.Marshal(r.Body)
		if err != nil {
			return nil, errs.As(errs.Internal, "wire.Send", err)
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, payload)
	if err != nil {
		return nil, errs.As(errs.Internal, "wire.Send", err)
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, errs.Wrap("wire.Send", ctx.Err())
		}
		return nil, errs.As(errs.Unavailable, "wire.Send", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		return nil, DecodeError(resp)
	}
	return resp, nil
}
