// Package nodeaccess serves nodes on a listener of their own: etcd through a proxy that knows what each
// node may do, certificates for new and known nodes, the values of secrets, and the API, to which agents
// relay the calls of their instances; see packages etcdproxy and enroll. The listener's other end is a
// host that may be hostile.
package nodeaccess

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/reveal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/etcdproxy"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// maxBody bounds the body of a call, in bytes.
	maxBody = 256 << 10
	// bodyTimeout bounds how long a call may take to send it: callers need no certificate yet.
	bodyTimeout = 10 * time.Second
)

// Config configures the calls of nodes. All fields are required.
type Config struct {
	Peers *trust.Peers
	Proxy *etcdproxy.Proxy
	Store *store.Client
	// Issuer issues the certificates of nodes.
	Issuer enroll.Issuer
	// UseToken marks the join token of a node as used by a host. secret and key are SHA-256 in hex: of the
	// token, and of the host's public key. Unauthenticated, with the reason, if the token admits no host.
	UseToken func(ctx context.Context, node fleet.NodeID, secret, key, ip string) error
	Opener   reveal.Opener
	// Gateways are the URLs at which gateways serve nodes, APIURL that of the API for instances.
	Gateways func() []string
	APIURL   func() string
	// API serves the calls that agents relay for their instances.
	API http.Handler
	Log *slog.Logger
}

type calls struct {
	cfg Config
	// refusals bounds the warnings about hosts that may not join.
	refusals *rate.Sometimes
}

// Handler returns the calls of nodes. It must be served on Config.Peers.JoinListener.
func Handler(cfg Config) http.Handler {
	c := calls{cfg, &rate.Sometimes{First: 10, Interval: 10 * time.Second}}
	mux := http.NewServeMux()
	cfg.Proxy.Register(mux)
	mux.HandleFunc("POST "+enroll.JoinPath, answering(c.join))
	mux.HandleFunc("POST "+enroll.RenewPath, answering(c.renew))
	mux.Handle("POST "+enroll.SecretsPath, cfg.Proxy.Admit(answering(c.secrets)))
	mux.Handle("/api/", cfg.Proxy.Admit(cfg.API))
	mux.Handle("GET /livez", cfg.Proxy.Admit(cfg.API))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		wire.Encode(w, wire.Internal, "", errs.New(errs.NotFound, "no route %s %s", r.Method, r.URL.Path))
	})
	return mux
}

// answering turns a function from a body to an answer into a handler.
func answering[In, Out any](answer func(*http.Request, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a connection that cannot is closed with the server
		err := wire.DecodeJSON(io.LimitReader(r.Body, maxBody+1), maxBody, &in)
		var out Out
		if err == nil {
			out, err = answer(r, in)
		}
		if err != nil {
			wire.Encode(w, wire.Internal, "", err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // an error means that the client has gone
	}
}

// join issues the first certificate of a host that has a join token.
func (c calls) join(r *http.Request, in enroll.JoinRequest) (out enroll.JoinAnswer, err error) {
	if err := in.Node.Validate(); err != nil {
		return out, err
	}
	key, err := pki.RequestedKey(in.CSR)
	if err != nil {
		return out, err
	}
	if err := c.cfg.Proxy.Revoked(in.Node); err != nil {
		return out, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return out, errs.WrapAs(errs.Invalid, "nodeaccess.join", err)
	}
	ip, _, _ := net.SplitHostPort(r.RemoteAddr)
	if err := c.cfg.UseToken(r.Context(), in.Node, hash([]byte(in.Token)), hash(der), ip); err != nil {
		c.refusals.Do(func() { c.cfg.Log.Warn("a host may not join", "node", string(in.Node), "ip", ip, "error", err) })
		return out, err
	}
	out = enroll.JoinAnswer{Gateways: c.cfg.Gateways(), APIURL: c.cfg.APIURL()}
	if out.Certificate, err = c.issue(in.Node, in.CSR); err == nil {
		c.cfg.Log.Info("a host has joined", "node", string(in.Node), "ip", ip)
	}
	return out, err
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// renew issues another certificate for a node that has one.
func (c calls) renew(r *http.Request, in enroll.RenewRequest) (out enroll.Certificate, err error) {
	caller, err := c.cfg.Peers.Renewable(r, enroll.Grace)
	switch {
	case err != nil:
		return out, err
	case caller.Service != pki.Agent:
		return out, errs.New(errs.Denied, "%s may not make this call: it is for %s", caller.Path(), pki.Agent)
	}
	node := fleet.NodeID(caller.Name)
	if err := c.cfg.Proxy.Revoked(node); err != nil {
		return out, err
	}
	return c.issue(node, in.CSR)
}

func (c calls) issue(node fleet.NodeID, csr []byte) (enroll.Certificate, error) {
	return c.cfg.Issuer.Issue(pki.Identity{Service: pki.Agent, Name: string(node)}, csr)
}
