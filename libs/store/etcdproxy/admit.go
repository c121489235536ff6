package etcdproxy

import (
	"context"
	"crypto/x509"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
)

// closeShare is the last part of a certificate's life, as a divisor, in which connections with it are
// closed after their calls: the agent has a newer one, and connects again.
const closeShare = 6

// nodeKey is the key of the calling node in a context.
type nodeKey struct{}

// NodeOf returns the node whose call Admit has passed on.
func NodeOf(ctx context.Context) fleet.NodeID {
	node, _ := ctx.Value(nodeKey{}).(fleet.NodeID)
	return node
}

// Admit passes on the calls of agents that are not revoked. The context of a call ends when the agent's
// certificate expires, and when its node is revoked.
func (p *Proxy) Admit(next http.Handler) http.Handler {
	return p.cfg.Peers.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := trust.CallerOf(r.Context())
		node, cert := fleet.NodeID(caller.Name), r.TLS.PeerCertificates[0]
		ctx, cancel := context.WithDeadline(context.WithValue(r.Context(), nodeKey{}, node), cert.NotAfter)
		defer cancel()
		leave, err := p.revoked.Enter(node, cancel)
		if err != nil {
			refuse(w, r, err)
			return
		}
		defer leave()
		if expiresSoon(cert) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	}), pki.Agent)
}

// refuse answers with an error, in the form of gRPC to its calls; see
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		wire.Encode(w, wire.Internal, "", err)
		return
	}
	code := codes.Unavailable
	if errs.Is(err, errs.Denied) {
		code = codes.PermissionDenied
	}
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(int(code)))
	h.Set("Grpc-Message", errs.MessageOf(err))
	w.WriteHeader(http.StatusOK)
}

func expiresSoon(c *x509.Certificate) bool {
	return time.Until(c.NotAfter) < c.NotAfter.Sub(c.NotBefore)/closeShare
}

// Revoked returns the error with which Admit refuses a node; nil if it does not.
func (p *Proxy) Revoked(node fleet.NodeID) error { return p.revoked.Check(node) }
