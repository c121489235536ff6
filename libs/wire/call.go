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

// answerLimit bounds the size of the answer that Call reads.
const answerLimit = 64 << 20

// Request is one JSON call.
type Request struct {
	Method, URL string
	// Token is sent as a bearer token unless it is empty.
	Token string
	// Body is sent as JSON. Nil sends no body.
	Body any
}

// Call performs a request and decodes the answer into a value; nil discards it. An error keeps the
// Kind the server sent. Without an answer it is Unavailable, or Canceled if ctx was cancelled.
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
		return errs.WrapAs(errs.Unavailable, "wire.Call", fmt.Errorf("%s %s: %w", r.Method, r.URL, err))
	}
	return nil
}

// Send performs a request and returns the answer if its status is below 400. The caller closes its
// body.
func Send(ctx context.Context, client *http.Client, r Request) (*http.Response, error) {
	var payload io.Reader
	if r.Body != nil {
		b, err := json.Marshal(r.Body)
		if err != nil {
			return nil, errs.WrapAs(errs.Internal, "wire.Send", err)
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, payload)
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "wire.Send", err)
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
		return nil, errs.WrapAs(errs.Unavailable, "wire.Send", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		return nil, DecodeError(resp)
	}
	return resp, nil
}
