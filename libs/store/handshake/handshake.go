// Package handshake has credentials for encrypted connections that keep the reason of a refusal. gRPC
// retries a refused connection without telling callers why.
package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Refusal is why the last connection failed. The zero value is usable. It is safe for concurrent use.
type Refusal struct {
	mu  sync.Mutex
	err error
}

func (r *Refusal) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// Reason returns the refusal; nil if the last connection was accepted.
func (r *Refusal) Reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Credentials returns an option for credentials that report refusals.
func Credentials(cfg *tls.Config, to *Refusal) grpc.DialOption {
	return grpc.WithTransportCredentials(handshakes{credentials.NewTLS(cfg), to})
}

type handshakes struct {
	credentials.TransportCredentials
	to *Refusal
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if ctx.Err() != nil {
		return conn, info, err
	}
	h.to.set(err)
	if err != nil {
		return conn, info, err
	}
	return watchedConn{conn, h.to}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.to}
}

// watchedConn reports when the server refuses the client's certificate. In TLS 1.3 it does so after the
// client's handshake.
type watchedConn struct {
	net.Conn
	to *Refusal
}

// Read implements net.Conn.
func (c watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	var remote *net.OpError
	if errors.As(err, &remote) && remote.Op == "remote error" {
		c.to.set(err)
	}
	return n, err
}
