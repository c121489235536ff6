package store

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// refusal is why the last encrypted connection to etcd failed. gRPC retries such connections without
// telling callers the reason.
type refusal struct {
	mu  sync.Mutex
	err error
}

func (r *refusal) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// reason returns the message of the refusal; empty if the last connection was accepted.
func (r *refusal) reason() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return ""
	}
	return r.err.Error()
}

// handshakes are the credentials of encrypted connections, which report refusals.
type handshakes struct {
	credentials.TransportCredentials
	to *refusal
}

func newHandshakes(cfg *tls.Config, to *refusal) handshakes {
	return handshakes{credentials.NewTLS(cfg), to}
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
	to *refusal
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
