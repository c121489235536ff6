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
	// silence is how long nothing may come of a call before it is asked whether its replica
	// answers at all, and how long that answer may take.
	silence = 5 * time.Second
	// askPatience is how long nothing may come of a question, uploadPatience of what is made
	// of an upload, from a replica that answers meanwhile. What a URL of the catalog has is
	// downloaded in the meantime.
	askPatience    = 30 * time.Second
	uploadPatience = 11 * time.Minute
)

// errSilent is in the error of a call that its replica left unanswered.
var errSilent = errors.New("nothing came for too long")

// attended gives up calls that nothing comes of. How long a call takes in all is not bounded:
// a body that its sender is slow with is not the replica's fault, and a replica that answers
// others may need some time for this one.
type attended struct {
	next http.RoundTripper
	// patience is how long nothing may come from a replica that answers others.
	patience time.Duration
}

// attend is a client whose calls are given up as attended says.
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

// attendance looks after one call.
type attendance struct {
	by     attended
	call   *http.Request
	ctx    context.Context
	giveUp context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
	// since is since when the replica is waited for; zero while it is not. answered is true
	// once the answer has begun: then what is sent yet does not count.
	since    time.Time
	answered bool
}

// wait begins to wait for the replica, rest ends it; while the call is sent they do nothing
// any more once it is answered.
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

// answer says that the answer has begun, or will never.
func (w *attendance) answer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.answered = time.Time{}, true
	w.timer.Stop()
}

// look gives the call up, if nothing came of it since: from a replica that answers nobody, or
// for too long.
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
	case !w.since.Equal(since): // something came, and another wait has a look of its own
	case !lives, time.Since(since) >= w.by.patience:
		w.giveUp(errSilent)
	default:
		w.timer.Reset(silence)
	}
}

// lives reports whether the replica answers another call, whatever it says.
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

// word says of a failure that nothing came, where it is that.
func (w *attendance) word(err error) error {
	if errors.Is(context.Cause(w.ctx), errSilent) {
		return errs.As(errs.Unavailable, "upstream.call", errSilent)
	}
	return err
}

// attendedBody is what is sent, for which the replica is waited for unless its source is.
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

// attendedAnswer is an answer, each piece of which is waited for.
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
