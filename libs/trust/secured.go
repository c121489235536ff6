package trust

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/orreryhq/orrery/libs/pki"
)

// secured uses connections that began with the current certificate, because a callee refuses a request over one
// whose certificate has expired. It refuses URLs that are not encrypted.
type secured struct {
	credentials *Credentials

	mu sync.Mutex
	// transport has the connections that began with bundle.
	transport *http.Transport
	bundle    *pki.Bundle
}

// RoundTrip implements http.RoundTripper.
func (s *secured) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, fmt.Errorf("%s is not called over plain HTTP: give that service a certificate, trust.file", r.URL.Host)
	}
	return s.current().RoundTrip(r)
}

// current returns the transport for the current certificate.
func (s *secured) current() *http.Transport {
	bundle := s.credentials.Bundle()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bundle != bundle {
		old := s.transport
		s.transport, s.bundle = old.Clone(), bundle
		old.CloseIdleConnections() // and those in use, once their requests end
	}
	return s.transport
}

// CloseIdleConnections closes the connections that no call uses.
func (s *secured) CloseIdleConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transport.CloseIdleConnections()
}
