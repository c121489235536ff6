// Package relay lets the instances of a node use the API of the gateways over the node's loopback. Plugins
// cannot be told to trust an authority of our own; the agent knows the gateways by its certificate. The
// address stays the same when the agent restarts, because instances keep it.
package relay

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/atomicfile"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// addressFile has the address of the relay, in the agent's data directory.
	addressFile   = "relay"
	headerTimeout = 10 * time.Second
	// drainTimeout bounds how long calls may take when the agent ends. Streams do not end by themselves.
	drainTimeout = time.Second
)

// Relay passes on the calls of instances.
type Relay struct {
	listener net.Listener
	gateways []*url.URL
	send     http.RoundTripper
	log      *slog.Logger
	// first is the index of the gateway to ask first. It moves on when that does not answer.
	first atomic.Int64
}

// Open listens on the address of an earlier agent of the data directory, or on a new one. send must know the
// gateways by their certificates. Invalid if a URL is not one.
func Open(dir string, gateways []string, send http.RoundTripper, log *slog.Logger) (*Relay, error) {
	r := &Relay{send: send, log: log}
	for _, g := range gateways {
		u, err := url.Parse(g)
		if err != nil || u.Host == "" {
			return nil, errs.Field("gateways", "%q is not a URL", g)
		}
		r.gateways = append(r.gateways, u)
	}
	path := filepath.Join(dir, addressFile)
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.WrapAs(errs.Unavailable, "relay.Open", err)
	}
	if len(before) > 0 {
		if r.listener, err = net.Listen("tcp", string(before)); err == nil {
			return r, nil
		}
		log.Warn("the relay to the API cannot use its address again: instances that run now do not reach the API until they are restarted", "address", string(before), "error", err)
	}
	if r.listener, err = listen(); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "relay.Open", err)
	}
	if err := atomicfile.Write(path, []byte(r.listener.Addr().String())); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "relay.Open", errors.Join(err, r.listener.Close()))
	}
	return r, nil
}

// The ports that an agent that is root tries. Other users cannot listen there while the agent restarts, and so
// get the tokens of instances.
const firstPort, lastPort = 700, 799

func listen() (net.Listener, error) {
	if os.Geteuid() == 0 {
		for port := firstPort; port <= lastPort; port++ {
			if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
				return l, nil
			}
		}
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// URL is the URL of the API for instances.
func (r *Relay) URL() string { return "http://" + r.listener.Addr().String() }

// Close closes the listener of a relay that does not run.
func (r *Relay) Close() { _ = r.listener.Close() }

// Run serves until ctx ends. The error is Unavailable if the listener fails before that.
func (r *Relay) Run(ctx context.Context) error {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.Out.Host = "" }, Transport: r, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			wire.Encode(w, wire.V1, "", errs.WrapAs(errs.Unavailable, "relay", err))
		},
	}
	s := &http.Server{Handler: proxy, ReadHeaderTimeout: headerTimeout, ErrorLog: proxy.ErrorLog}
	return wire.Serve(ctx, s, r.listener, drainTimeout)
}

// RoundTrip implements http.RoundTripper: it asks one gateway after the other until one can be reached. A request
// that a gateway may have is not sent to another one.
func (r *Relay) RoundTrip(request *http.Request) (resp *http.Response, err error) {
	first := r.first.Load()
	for n := range int64(len(r.gateways)) {
		at := (first + n) % int64(len(r.gateways))
		attempt := request.Clone(request.Context())
		attempt.URL.Scheme, attempt.URL.Host = r.gateways[at].Scheme, r.gateways[at].Host
		attempt.URL.Path = strings.TrimSuffix(r.gateways[at].Path, "/") + request.URL.Path
		if request.Body != nil {
			attempt.Body = open{request.Body}
		}
		sent := false
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }}
		if resp, err = r.send.RoundTrip(attempt.WithContext(httptrace.WithClientTrace(attempt.Context(), trace))); err == nil {
			return resp, nil
		}
		r.first.CompareAndSwap(at, (at+1)%int64(len(r.gateways)))
		if sent || request.Context().Err() != nil {
			break
		}
	}
	return nil, err
}

// open is a body that is not closed with its request, so that another gateway can read it.
type open struct{ io.Reader }

// Close implements io.Closer. It does nothing.
func (open) Close() error { return nil }
