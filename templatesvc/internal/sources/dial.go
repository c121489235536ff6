package sources

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
)

// Dialer makes connections whose reads and writes fail after Idle without progress.
type Dialer struct {
	// Idle is the timeout of a dial and of each read and write. 0 means DefaultIdle.
	Idle time.Duration
	// Egress says which addresses may be dialed.
	Egress egress.Policy
}

// DefaultIdle is long enough for a slow server, and short enough to notice one that hangs.
const DefaultIdle = 30 * time.Second

func (d Dialer) idle() time.Duration { return cmp.Or(d.Idle, DefaultIdle) }

// Dial connects. Each Read and Write of the connection has its own deadline.
func (d Dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return d.patient(d.Egress.Dial(ctx, d.idle(), network, address))
}

func (d Dialer) dialHTTP(ctx context.Context, network, address string) (net.Conn, error) {
	return d.patient(d.Egress.DialHTTP(ctx, d.idle(), network, address))
}

func (d Dialer) patient(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &patient{Conn: c, idle: d.idle()}, nil
}

// maxRedirects is the maximum number of redirects per request.
const maxRedirects = 10

// Client returns an HTTP client that uses the dialer's connections. It follows at most
// maxRedirects redirects, only to http and https, and never from https to http. The caller
// closes its idle connections.
func (d Dialer) Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: d.Egress.ProxyOf, DialContext: d.dialHTTP, TLSHandshakeTimeout: d.idle(),
			ResponseHeaderTimeout: d.idle(), MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: d.idle(),
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case len(via) >= maxRedirects:
				return errs.New(errs.Unavailable, "the server redirects more than %d times: give the URL it leads to in the end", maxRedirects)
			case r.URL.Scheme != "http" && r.URL.Scheme != "https":
				return errs.New(errs.Invalid, "the server redirects to a %s URL, which is not followed", r.URL.Scheme)
			case via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme == "http":
				return errs.New(errs.Invalid, "the server redirects from https to http, which is not followed")
			}
			return nil
		},
	}
}

// Unreachable returns the error for a source that does not answer as expected. The message
// contains no URL, because a server may have redirected to a signed one.
func Unreachable(what string, err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var own *errs.Error
	if errors.As(err, &own) && own.Message != "" {
		return err
	}
	if errs.Is(err, errs.Canceled) {
		return errs.Wrap("origin", err)
	}
	message := what + " cannot be reached: look at the URL and the network"
	var timeout net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		message = what + " accepts connections and does not answer in time: look at the server"
	}
	return &errs.Error{Op: "origin", Kind: errs.Unavailable, Message: message, Err: err}
}

// patient is a connection that sets a deadline for each Read and Write.
type patient struct {
	net.Conn
	idle time.Duration
}

// Read implements net.Conn.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(p.idle)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

// Write implements net.Conn.
func (p *patient) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(p.idle)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}
