package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/reconcile"
)

// The headers of a request. Timestamp and Signature exist only if the target has a secret.
const (
	HeaderDelivery  = "Orrery-Delivery"
	HeaderEvent     = "Orrery-Event"
	HeaderTimestamp = "Orrery-Timestamp"
	HeaderSignature = "Orrery-Signature"
)

const (
	// Timeout bounds one request, with its answer.
	Timeout = 10 * time.Second
	// maxAnswer and maxHeader bound what is read of an answer, in bytes. The body is discarded.
	maxAnswer = 4 << 10
	maxHeader = 64 << 10
	// idleConns is how many connections to a target stay open, idleTime for how long.
	idleConns = 1
	idleTime  = 30 * time.Second
)

// Sign returns the signature of a body: the HMAC-SHA256 of the timestamp in seconds, a period and the body.
func Sign(secret string, timestamp int64, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(strconv.AppendInt(nil, timestamp, 10)) // a hash never fails
	mac.Write([]byte{'.'})
	mac.Write(body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Result is the outcome of one request.
type Result struct {
	// Status is the status code, 0 without an answer.
	Status int
	// RetryAfter is how long the target asks to wait; 0 if it does not.
	RetryAfter time.Duration
	// Error says why the target did not accept the message; "" if it did. It never has the URL.
	Error string
}

// OK reports whether the target accepted the message.
func (r Result) OK() bool { return r.Error == "" }

// Sender sends requests. It is safe for concurrent use.
type Sender struct{ client *http.Client }

// NewSender returns a Sender that connects as the policy allows. The caller closes it.
func NewSender(policy egress.Policy) *Sender {
	return &Sender{client: &http.Client{
		Timeout: Timeout,
		// The address that a redirect names was not chosen by the operator, and it would get the message.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return policy.DialHTTP(ctx, Timeout, network, address)
			},
			Proxy: policy.ProxyOf, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime, MaxResponseHeaderBytes: maxHeader,
		},
	}}
}

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Send sends a message to a target once.
func (s *Sender) Send(ctx context.Context, to notice.Target, f notice.Format, m Message, at time.Time) Result {
	body := Body(f, m)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return Result{Error: "the URL is not valid"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "orrery")
	req.Header.Set(HeaderDelivery, m.Delivery())
	req.Header.Set(HeaderEvent, m.Event.Type)
	if to.Secret != "" {
		req.Header.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
		req.Header.Set(HeaderSignature, Sign(to.Secret, at.Unix(), body))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return Result{Error: why(err)}
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection can be used again; errors do not matter
	out := Result{Status: resp.StatusCode}
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		out.Error = fmt.Sprintf("the target redirects (status %d), which is not followed: enter the final URL", resp.StatusCode)
	default:
		out.Error = fmt.Sprintf("the target answered with status %d", resp.StatusCode)
		if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil {
			out.RetryAfter = time.Duration(seconds) * time.Second
		}
	}
	return out
}

// why returns an error of a request without its URL.
func why(err error) string {
	var timeout net.Error
	switch {
	case errs.Is(err, errs.Denied):
		return errs.MessageOf(err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("the target did not answer within %v", Timeout)
	}
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return "the target cannot be reached: " + err.Error()
}

// Retries bound the attempts to send one message.
type Retries struct {
	// Attempts is how often a message is sent before it is given up.
	Attempts int
	// Backoff is the pause after a failed attempt.
	Backoff reconcile.Backoff
}

// DefaultRetries give up a message after about an hour.
func DefaultRetries() Retries {
	return Retries{Attempts: 20, Backoff: reconcile.Backoff{Base: time.Second, Max: 5 * time.Minute}}
}

// Verdict is what follows from a result.
type Verdict struct {
	// Done is true if the message is not sent again: it was delivered or given up.
	Done bool
	// Wait is the pause before the next attempt, of this message or the next one.
	Wait time.Duration
}

// Judge returns what follows from the result of an attempt to send a message. attempt counts those of the
// message, from 1. failures counts the failed attempts in a row, of any messages, with this one. random
// may be nil.
func (r Retries) Judge(of Result, attempt, failures int, random *rand.Rand) Verdict {
	switch {
	case of.OK():
		return Verdict{Done: true}
	case refused(of.Status):
		return Verdict{Done: true} // it would be refused again
	}
	wait := r.Backoff.Delay(max(failures, 1), random)
	return Verdict{Done: attempt >= r.Attempts, Wait: max(wait, min(of.RetryAfter, r.Backoff.Max))}
}

// refused reports whether a status means that the target will never accept the message.
func refused(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 300 && status < 500
}
