package trust

import (
	"net/http"
	"sync"

	"github.com/orreryhq/orrery/libs/pki"
)

// maxPooled bounds the transports of a Pool, and the known callers. It is more than a cluster has nodes.
const maxPooled = 4096

// Pool has a transport for each service that a process calls. It is safe for concurrent use.
type Pool struct {
	peers *Peers
	base  *http.Transport

	mu  sync.Mutex
	all map[pki.Identity]http.RoundTripper
}

// NewPool returns a pool of transports with the settings of base.
func NewPool(peers *Peers, base *http.Transport) *Pool {
	return &Pool{peers: peers, base: base, all: map[pki.Identity]http.RoundTripper{}}
}

// To returns the transport for calls to a service; see Peers.Transport. Without certificates all services
// share base.
func (p *Pool) To(service pki.Identity) http.RoundTripper {
	if !p.peers.Certified() {
		return p.base
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.all[service]
	if !ok {
		if len(p.all) >= maxPooled {
			p.drop()
		}
		t = p.peers.Transport(p.base, service)
		p.all[service] = t
	}
	return t
}

// CloseIdleConnections closes the connections that no call uses.
func (p *Pool) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base.CloseIdleConnections()
	p.drop()
}

// drop forgets all transports. Calls in progress end as usual.
func (p *Pool) drop() {
	for _, t := range p.all {
		(&http.Client{Transport: t}).CloseIdleConnections()
	}
	clear(p.all)
}
