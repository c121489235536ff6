package orrery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"
)

const (
	// silence is how long a stream may be without any byte. Gateways send something every 15 s.
	silence = 45 * time.Second
	// longestStreamPause bounds the pause before a stream reconnects, also if the gateway asks for a
	// longer one.
	longestStreamPause = 2 * time.Minute
)

// errDone ends a stream that is complete, or whose consumer wants no more.
var errDone = errors.New("the stream is complete")

// lostError says why a connection of a stream ended. Another connection can continue the stream.
type lostError struct {
	address string
	err     error
}

// Error returns the address of the gateway and the cause.
func (e *lostError) Error() string { return "lost the stream from " + e.address + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *lostError) Unwrap() error { return e.err }

// connection opens a stream where the previous one ended, and reads it to its end. The error is never
// nil. progress is true if the connection worked, so that the next pause is short.
type connection func(ctx context.Context) (progress bool, err error)

// reconnect runs one connection after the other until the stream is complete (nil), until ctx ends, or
// until a gateway refuses for good.
func reconnect(ctx context.Context, onReconnect func(error), run connection) error {
	for failures := 1; ; failures++ {
		progress, err := run(ctx)
		switch {
		case errors.Is(err, errDone):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !curable(err):
			return err
		case progress:
			failures = 1
		}
		if onReconnect != nil {
			onReconnect(err)
		}
		if err := sleep(ctx, min(delay(err, failures), longestStreamPause)); err != nil {
			return err
		}
	}
}

// curable reports whether another connection may succeed after err.
func curable(err error) bool {
	var lost *lostError
	var refusal *Error
	switch {
	case errors.As(err, &lost), errors.Is(err, ErrUnreachable), errors.Is(err, ErrUnavailable):
		return true
	case errors.As(err, &refusal):
		return refusal.Status >= http.StatusInternalServerError
	}
	return false
}

// subscription makes the requests of a stream of server-sent events and processes its frames. It
// survives its connections and knows the position.
type subscription interface {
	// request returns the request that continues after the last accepted frame.
	request() Request
	// accept processes a frame. An error ends the stream.
	accept(f frame) error
	// idle is called when all frames that have arrived were accepted.
	idle()
}

// subscribe receives a stream of server-sent events. The error is that of reconnect.
func (c *Client) subscribe(ctx context.Context, s subscription, onReconnect func(error)) error {
	return reconnect(ctx, onReconnect, func(ctx context.Context) (bool, error) { return c.receive(ctx, s) })
}

// receive is a connection of a subscription.
func (c *Client) receive(ctx context.Context, s subscription) (progress bool, err error) {
	request := s.request()
	l, ctx := c.listen(ctx)
	defer l.close()
	response, err := l.open(ctx, request)
	if err != nil {
		return false, l.cause(err)
	}
	defer response.Body.Close()
	frames := newFrameReader(&watchedReader{response.Body, l, s.idle})
	for {
		f, err := frames.next()
		switch {
		case errors.Is(err, errFrameTooLong):
			return progress, fmt.Errorf("%s %s: %w", request.Method, request.Path, err)
		case err != nil:
			return progress, l.lost(err)
		case ctx.Err() != nil:
			return progress, ctx.Err()
		case f.event == "error":
			return progress, l.lost(errors.New(messageOf(f.data)))
		}
		if err := s.accept(f); err != nil {
			return progress, err
		}
		progress = progress || f.event != "connected"
	}
}

// open requests a stream of server-sent events. The caller closes the body of the answer.
func (l *listening) open(ctx context.Context, request Request) (*http.Response, error) {
	if request.Header == nil {
		request.Header = http.Header{}
	}
	request.Header.Set("Accept", "text/event-stream")
	response, err := l.client.try(ctx, 1, func(address *url.URL, token string) (*http.Response, error) {
		l.address = address
		return l.client.send(ctx, address, request, nil, token)
	})
	if err != nil {
		return nil, err
	}
	kind := response.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(kind); media != "text/event-stream" {
		response.Body.Close()
		return nil, fmt.Errorf("%s %s: the answer is %q and not an event stream: check the address of the gateway", request.Method, request.Path, kind)
	}
	return response, nil
}

// messageOf returns the message of an error event.
func messageOf(data []byte) string {
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(data, &e) != nil || e.Message == "" {
		return "the gateway ended it"
	}
	return e.Message
}

// listening is one connection of a stream. It ends the connection's context when nothing arrives for
// too long. The time counts only while the client waits, because a consumer may take long.
type listening struct {
	client *Client
	// address is the gateway.
	address *url.URL
	timer   *time.Timer
	// cancel ends the context of the connection. why returns the cause of its end.
	cancel context.CancelCauseFunc
	why    func() error
}

// errSilent is the cause of a context that listening ended.
type errSilent time.Duration

// Error says how long nothing arrived.
func (e errSilent) Error() string { return fmt.Sprintf("nothing arrived for %v", time.Duration(e)) }

// listen begins to wait for a connection, and returns the connection's context. The caller closes it.
func (c *Client) listen(ctx context.Context) (*listening, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &listening{client: c, address: c.address(0), cancel: cancel, why: func() error { return context.Cause(ctx) }}
	l.timer = time.AfterFunc(c.silence, func() { cancel(errSilent(c.silence)) })
	return l, ctx
}

func (l *listening) close() {
	l.timer.Stop()
	l.cancel(nil)
}

// wait starts the time. arrived stops it.
func (l *listening) wait()    { l.timer.Reset(l.client.silence) }
func (l *listening) arrived() { l.timer.Stop() }

// lost returns the error of a connection that was lost. After a silence the next gateway is tried.
func (l *listening) lost(err error) error {
	var silent errSilent
	if errors.As(l.why(), &silent) {
		l.client.advance(l.address)
		err = silent
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the gateway closed it")
	}
	return &lostError{l.address.String(), err}
}

// cause returns the error of a connection that was not opened.
func (l *listening) cause(err error) error {
	if errors.Is(err, context.Canceled) {
		return l.lost(err)
	}
	return err
}

// watchedReader reads from a connection and watches for silence.
type watchedReader struct {
	io.Reader
	l *listening
	// idle is called before each read.
	idle func()
}

// Read reads what arrived.
func (r *watchedReader) Read(p []byte) (int, error) {
	r.idle()
	r.l.wait()
	defer r.l.arrived()
	return r.Reader.Read(p)
}
