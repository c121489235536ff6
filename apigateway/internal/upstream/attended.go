package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// silence is how long a call may make no progress before the replica is probed, and the timeout of
	// the probe.
	silence = 5 * time.Second
	// askPatience and uploadPatience limit how long a request or an upload may make no progress while the
	// replica answers probes. templatesvc downloads catalog URLs in that time.
	askPatience    = 30 * time.Second
	uploadPatience = 11 * time.Minute
)

// errSilent is in the error of a call that the replica did not answer.
var errSilent = errors.New("the call made no progress for too long")

// attended cancels calls that make no progress. It does not limit a call's total time: a slow sender of
// the body is not the replica's fault, and a replica that answers probes may need time.
type attended struct {
	next http.RoundTripper
	// patience is how long a replica that answers probes may make no progress.
	patience time.Duration
}

// attend returns a client whose calls are canceled as described at attended.
func attend(c *http.Client, patience time.Duration) *http.Client {
	out := *c
	next := out.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	out.Transport = attended{next, patience}
	return &out
}

// RoundTrip makes a call.
func (a attended) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	w := &attendance{by: a, call: r, ctx: ctx, giveUp: cancel}
	w.timer = time.AfterFunc(silence, w.look)
	w.wait(true)
	sent := r.Clone(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		sent.Body = &attendedBody{r.Body, w}
	}
	resp, err := a.next.RoundTrip(sent)
	w.answer()
	if err != nil {
		cancel(nil)
		return nil, w.word(err)
	}
	resp.Body = &attendedAnswer{resp.Body, w}
	return resp, nil
}

// attendance monitors one call.
type attendance struct {
	by     attended
	call   *http.Request
	ctx    context.Context
	giveUp context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
	// since is when waiting for the replica began; zero while not waiting. answered is true once the
	// response has begun: then sending the rest of the body is no longer monitored.
	since    time.Time
	answered bool
}

// wait starts waiting for the replica, rest stops it. With sending, both do nothing once the response
// has begun.
func (w *attendance) wait(sending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !sending || !w.answered {
		w.since = time.Now()
		w.timer.Reset(silence)
	}
}

func (w *attendance) rest(sending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !sending || !w.answered {
		w.since = time.Time{}
		w.timer.Stop()
	}
}

// answer records that the response has begun or failed.
func (w *attendance) answer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.answered = time.Time{}, true
	w.timer.Stop()
}

// look cancels the call if it made no progress and the replica does not answer a probe, or if patience
// is over.
func (w *attendance) look() {
	w.mu.Lock()
	since := w.since
	w.mu.Unlock()
	if since.IsZero() {
		return
	}
	lives := w.lives()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.since.Equal(since): // progress was made; the next wait has its own check
	case !lives, time.Since(since) >= w.by.patience:
		w.giveUp(errSilent)
	default:
		w.timer.Reset(silence)
	}
}

// lives reports whether the replica answers a probe with any status.
func (w *attendance) lives() bool {
	ctx, cancel := context.WithTimeout(w.ctx, silence)
	defer cancel()
	at := *w.call.URL
	at.Path, at.RawPath, at.RawQuery = "/livez", "", ""
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return false
	}
	resp, err := w.by.next.RoundTrip(r)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil
}

// word adds errSilent to the error of a canceled call.
func (w *attendance) word(err error) error {
	if errors.Is(context.Cause(w.ctx), errSilent) {
		return errs.WrapAs(errs.Unavailable, "upstream.call", errSilent)
	}
	return err
}

// attendedBody is a request body. The replica is monitored except while the body's source is read.
type attendedBody struct {
	io.ReadCloser
	w *attendance
}

// Read reads on.
func (b *attendedBody) Read(p []byte) (int, error) {
	b.w.rest(true)
	n, err := b.ReadCloser.Read(p)
	b.w.wait(true)
	return n, err
}

// attendedAnswer is a response body with monitored reads.
type attendedAnswer struct {
	io.ReadCloser
	w *attendance
}

// Read reads on.
func (b *attendedAnswer) Read(p []byte) (int, error) {
	b.w.wait(false)
	n, err := b.ReadCloser.Read(p)
	b.w.rest(false)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.w.word(err)
	}
	return n, err
}

// Close ends the call.
func (b *attendedAnswer) Close() error {
	b.w.rest(false)
	err := b.ReadCloser.Close()
	b.w.giveUp(nil)
	return err
}
