// Package handshake has credentials for encrypted connections that keep the reason of a refusal. gRPC
// retries a refused connection without telling callers why.
package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Refusal is why the last connection failed. The zero value is usable. It is safe for concurrent use.
type Refusal struct{ reason atomic.Pointer[error] }

// Reason returns the refusal; nil if the last connection was accepted.
func (r *Refusal) Reason() error {
	if err := r.reason.Load(); err != nil {
		return *err
	}
	return nil
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
	if err != nil {
		if ctx.Err() == nil {
			h.to.reason.Store(&err)
		}
		return conn, info, err
	}
	return watchedConn{conn, h.to}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.to}
}

// watchedConn reports whether the server refuses the client's certificate. In TLS 1.3 it does so after the
// client's handshake.
type watchedConn struct {
	net.Conn
	to *Refusal
}

// Read implements net.Conn.
func (c watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	var remote *net.OpError
	switch {
	case errors.As(err, &remote) && remote.Op == "remote error":
		c.to.reason.Store(&err)
	case n > 0 && c.to.reason.Load() != nil:
		c.to.reason.Store(nil) // the server sends nothing before it accepts
	}
	return n, err
}
