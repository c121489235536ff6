package upstream

import (
	"net/http"

	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
)

// Connections are the gateway's connections to other services. Calls over them forward the correlation ID.
type Connections struct {
	// Token is the bearer token of the calls; empty with certificates.
	Token string
	// Outside is for calls to servers that are no services of the cluster.
	Outside *http.Transport
	pool    *trust.Pool
}

// NewConnections returns connections with the settings of base.
func NewConnections(peers *trust.Peers, base *http.Transport) Connections {
	return Connections{Token: peers.Token(), Outside: base, pool: trust.NewPool(peers, base)}
}

// To returns a client for calls to a service; see trust.Peers.Transport.
func (c Connections) To(service pki.Identity) *http.Client {
	return &http.Client{Transport: Correlated(c.pool.To(service))}
}

// CloseIdle closes the connections that no call uses.
func (c Connections) CloseIdle() { c.pool.CloseIdleConnections() }
