// Package peer connects gateways. With certificates, the endpoints that gateways use among themselves
// are on a listener of their own. Without, they are on the address of the API and require the cluster
// secret; a request without it is passed on to the API. Requests of other gateways bypass the API with
// its rate limits and allowed subnets.
package peer

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
)

// Endpoint handles one kind of request of other gateways.
type Endpoint struct {
	Method, Path string
	Handle       http.HandlerFunc
}

// Handler serves requests with the cluster secret at the endpoints and passes all others to next.
func Handler(next http.Handler, secret string, endpoints ...Endpoint) http.Handler {
	want, handlers := []byte("Bearer "+secret), make(map[[2]string]http.HandlerFunc, len(endpoints))
	for _, e := range endpoints {
		handlers[[2]string{e.Method, e.Path}] = e.Handle
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle := handlers[[2]string{r.Method, r.URL.Path}]
		if handle == nil || subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			next.ServeHTTP(w, r)
			return
		}
		handle(w, r)
	})
}

// Certified serves the endpoints to gateways with certificates.
func Certified(peers *trust.Peers, endpoints ...Endpoint) http.Handler {
	mux := http.NewServeMux()
	for _, e := range endpoints {
		mux.Handle(e.Method+" "+e.Path, e.Handle)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		wire.Encode(w, wire.Internal, "", errs.New(errs.NotFound, "no route %s %s", r.Method, r.URL.Path))
	})
	return peers.Guard(mux, pki.Gateway)
}

// Client calls the endpoints of other gateways.
type Client struct {
	peers *trust.Peers
	calls upstream.Connections
}

// NewClient returns a client that uses the connections.
func NewClient(peers *trust.Peers, calls upstream.Connections) *Client {
	return &Client{peers: peers, calls: calls}
}

// URL returns the base URL of another gateway's endpoints; empty if it has none.
func (c *Client) URL(other *cluster.Session) string {
	if c.peers.Certified() {
		return other.PeerURL
	}
	return other.URL
}

// Call calls an endpoint of the gateway at a base URL; see wire.Call. The path may have a query.
func (c *Client) Call(ctx context.Context, method, base, path string, body, into any) error {
	if base == "" {
		return errs.New(errs.Unavailable, "the gateway has no URL for other gateways: set trust.file for all of them")
	}
	return wire.Call(ctx, c.calls.To(pki.Identity{Service: pki.Gateway}), wire.Request{
		Method: method, URL: strings.TrimSuffix(base, "/") + path, Token: c.calls.Token, Body: body,
	}, into)
}
