package orrery

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Config configures a Client.
type Config struct {
	// Addresses are the base URLs of the gateways, for example http://127.0.0.1:8080. A request goes to
	// the gateway that answered last, and to the next one when that does not answer.
	Addresses []string
	// Credentials give the token of each request. Without them only public routes answer.
	Credentials Credentials
	// RootCAs are the authorities that sign the certificates of gateways at https URLs. Nil means those of
	// this host. It has no effect with HTTPClient.
	RootCAs *x509.CertPool
	// HTTPClient sends the requests. The default has connection timeouts but no total timeout, because
	// streams do not end: bound other calls with their context.
	HTTPClient *http.Client
	// UserAgent names the program. The default is orrery-sdk.
	UserAgent string
	// MaxAttempts is how often a request is sent at most; 0 means 4, 1 disables retries.
	MaxAttempts int
}

// Credentials supply bearer tokens. They are used concurrently.
type Credentials interface {
	// Token returns the token for a request. rejected is the token that a gateway just refused with
	// 401, or empty. If Token has no other one than that, it returns it again.
	Token(ctx context.Context, rejected string) (string, error)
}

// StaticToken is a token that does not change, such as an API token.
type StaticToken string

// Token returns the token.
func (t StaticToken) Token(context.Context, string) (string, error) { return string(t), nil }

// Client calls gateways. Create it with New. It may be used concurrently.
type Client struct {
	addresses   []*url.URL
	current     atomic.Int64 // index of the gateway that answered last
	credentials Credentials
	http        *http.Client
	userAgent   string
	maxAttempts int
	silence     time.Duration // after which a stream counts as lost
}

// defaultAttempts is Config.MaxAttempts if it is 0.
const defaultAttempts = 4

// New returns a Client. It fails if an address is not an absolute http or https URL.
func New(config Config) (*Client, error) {
	c := &Client{
		credentials: config.Credentials, http: config.HTTPClient,
		userAgent: config.UserAgent, maxAttempts: config.MaxAttempts, silence: silence,
	}
	if len(config.Addresses) == 0 {
		return nil, errors.New("the client needs the address of a gateway, for example http://127.0.0.1:8080")
	}
	for _, address := range config.Addresses {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, fmt.Errorf("address %q is not a URL like http://127.0.0.1:8080", address)
		}
		u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
		c.addresses = append(c.addresses, u)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: transport(config.RootCAs)}
	}
	if c.userAgent == "" {
		c.userAgent = "orrery-sdk"
	}
	if c.maxAttempts == 0 {
		c.maxAttempts = defaultAttempts
	}
	return c, nil
}

// transport returns a transport that gives up on gateways that do not accept connections or do not
// begin to answer.
func transport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: 90 * time.Second, // some calls wait up to a minute for their effect
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Address returns the base URL of the gateway that answered last.
func (c *Client) Address() string { return c.address(0).String() }

// address returns the gateway that is offset places behind the current one.
func (c *Client) address(offset int) *url.URL {
	return c.addresses[(int(c.current.Load())+offset)%len(c.addresses)]
}

// advance makes the gateway after failed the current one, unless another request did so already.
func (c *Client) advance(failed *url.URL) {
	i := slices.Index(c.addresses, failed)
	c.current.CompareAndSwap(int64(i), int64((i+1)%len(c.addresses)))
}

// Request is a call of the API, for operations that have no method, and for answers whose unknown
// fields matter.
type Request struct {
	// Method is the HTTP method.
	Method string
	// Path is the escaped path below the address of the gateway, for example /api/v1/groups/lobby.
	Path string
	// Query and Header are added to the request. They may be nil.
	Query  url.Values
	Header http.Header
	// Body is encoded as JSON, unless it is nil or a *Content.
	Body any
}

// Call sends a request and decodes the JSON answer into the value that into points at. A nil into
// discards the answer. It returns *Error if the gateway refused, and *UnreachableError if none
// answered.
func (c *Client) Call(ctx context.Context, request Request, into any) error {
	response, err := c.Do(ctx, request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if into == nil || response.StatusCode == http.StatusNoContent {
		_, err = io.Copy(io.Discard, response.Body)
	} else {
		err = json.NewDecoder(response.Body).Decode(into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", asked(request.Method, request.Path), ErrAnswer, err)
	}
	if t, ok := into.(tagged); ok {
		t.setETag(response.Header.Get("ETag"))
	}
	return nil
}

// tagged is a decoded object that remembers its ETag.
type tagged interface{ setETag(tag string) }

// Do sends a request and returns an answer with a status below 400. The caller closes its body. Do
// retries, moves on to the next gateway, and asks the credentials once for another token after a
// 401.
func (c *Client) Do(ctx context.Context, request Request) (*http.Response, error) {
	body, err := encode(request.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", asked(request.Method, request.Path), err)
	}
	header := request.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if !reads(request.Method) && header.Get("Idempotency-Key") == "" {
		header.Set("Idempotency-Key", cryptorand.Text())
	}
	request.Header = header
	return c.try(ctx, c.maxAttempts, func(address *url.URL, token string) (*http.Response, error) {
		return c.send(ctx, address, request, body, token)
	})
}

// roundTrip makes one attempt at a gateway.
type roundTrip func(address *url.URL, token string) (*http.Response, error)

// try makes attempts until one is answered with a status below 400.
func (c *Client) try(ctx context.Context, attempts int, send roundTrip) (*http.Response, error) {
	token, err := c.token(ctx, "")
	if err != nil {
		return nil, err
	}
	renewed := false
	for attempt := 1; ; attempt++ {
		address := c.address(0)
		response, err := send(address, token)
		if err == nil && response.StatusCode < http.StatusBadRequest {
			return response, nil
		}
		failure := c.failureOf(ctx, address, response, err)
		if errors.Is(failure, ErrUnauthenticated) && !renewed && token != "" {
			renewed = true
			fresh, err := c.token(ctx, token)
			if err != nil {
				return nil, err
			}
			if fresh != token {
				token = fresh
				continue
			}
		}
		if !retryable(failure) || attempt >= most(attempts, failure) {
			return nil, failure
		}
		if err := pause(ctx, failure, attempt); err != nil {
			return nil, failure
		}
	}
}

func (c *Client) token(ctx context.Context, rejected string) (string, error) {
	if c.credentials == nil {
		return "", nil
	}
	return c.credentials.Token(ctx, rejected)
}

// failureOf returns the error of an attempt. After a gateway that did not answer it moves on to the
// next one.
func (c *Client) failureOf(ctx context.Context, address *url.URL, response *http.Response, err error) error {
	if err == nil {
		refusal := errorOf(response)
		if errors.Is(refusal, ErrUnavailable) {
			c.advance(address)
		}
		return refusal
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var unreadable *contentError
	if errors.As(err, &unreadable) {
		return unreadable
	}
	c.advance(address)
	return &UnreachableError{Address: address.String(), Err: explained(cause(err))}
}

// cause returns err without the method and the URL, which net/http repeats.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// explained returns err with the reason why no connection with TLS was made, in plain words.
func explained(err error) error {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var reason string
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		reason = "the server speaks HTTP, not HTTPS"
	case errors.As(err, &authority):
		reason = "the authority that signed its certificate is unknown here"
	case errors.As(err, &name):
		reason = "its certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		reason = "its certificate has expired, or is not valid yet"
	default:
		return err
	}
	return fmt.Errorf("%s: %w", reason, err)
}

// send makes one attempt.
func (c *Client) send(ctx context.Context, address *url.URL, request Request, body *Content, token string) (*http.Response, error) {
	target := address.String() + request.Path
	if len(request.Query) > 0 {
		target += "?" + request.Query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, request.Method, target, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header = request.Header.Clone()
	if body != nil {
		// With GetBody, net/http itself repeats a request that met a connection which had just ended.
		r.GetBody = body.open
		if r.Body, err = body.open(); err != nil {
			return nil, err
		}
		r.ContentLength = body.Size
		if r.ContentLength == 0 {
			r.ContentLength = -1
		}
		r.Header.Set("Content-Type", body.Type)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if r.Header.Get("Accept") == "" {
		r.Header.Set("Accept", "application/json")
	}
	r.Header.Set("User-Agent", c.userAgent)
	return c.http.Do(r)
}

// encode returns the body of a request; nil if it has none.
func encode(body any) (*Content, error) {
	if body == nil {
		return nil, nil
	}
	if content, ok := body.(*Content); ok {
		return content, nil
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &Content{
		Type: "application/json", Size: int64(len(encoded)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(encoded)), nil },
	}, nil
}

const (
	// codeUnderWay is the code of a refusal that says: a gateway still answers an earlier attempt with
	// the same idempotency key.
	codeUnderWay = "UNDER_WAY"
	// codeAlreadyDone and codeOutcomeUnknown are those of refusals to repeat a request whose answer is lost.
	codeAlreadyDone    = "ALREADY_DONE"
	codeOutcomeUnknown = "OUTCOME_UNKNOWN"
	// underWayAttempts is how many more attempts such refusals allow. Gateways give the code for 10 s
	// after an attempt whose gateway died.
	underWayAttempts = 15
)

// most returns how often a request is sent at most, if failure is the last answer.
func most(attempts int, failure error) int {
	var refusal *Error
	if attempts > 1 && errors.As(failure, &refusal) && refusal.Code == codeUnderWay {
		return attempts + underWayAttempts
	}
	return attempts
}

// reads reports whether requests with a method change nothing. All others carry an idempotency key,
// so that each request may be sent again.
func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// retryable reports whether a request may be sent again after failure.
func retryable(failure error) bool {
	var refusal *Error
	if errors.As(failure, &refusal) && refusal.Code == codeUnderWay {
		return true
	}
	return errors.Is(failure, ErrUnavailable) || errors.Is(failure, ErrUnreachable)
}

const (
	// firstPause and longestPause bound the random pause between two attempts.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// longestRetryAfter is how long a gateway may ask to wait. A longer pause is left to the caller.
	longestRetryAfter = 10 * time.Second
)

// pause waits before the next attempt. It fails at once if the gateway or the context forbids another
// attempt in time.
func pause(ctx context.Context, failure error, attempt int) error {
	wait := delay(failure, attempt)
	if wait > longestRetryAfter {
		return failure
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		return context.DeadlineExceeded
	}
	return sleep(ctx, wait)
}

// delay returns the pause after a number of failed attempts: what the gateway asked for, or
// exponentially longer with full jitter.
func delay(failure error, attempts int) time.Duration {
	var refusal *Error
	if errors.As(failure, &refusal) && refusal.RetryAfter > 0 {
		return refusal.RetryAfter
	}
	limit := longestPause
	if shift := attempts - 1; shift < 10 { // a larger shift could overflow
		limit = min(firstPause<<shift, longestPause)
	}
	return rand.N(limit)
}

// sleep waits until ctx ends at the latest.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
