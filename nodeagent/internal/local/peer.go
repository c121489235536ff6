package local

import (
	"context"
	"fmt"
	"net"
	"os/user"
	"strconv"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
)

// peerKey is the context key of a connection's peer.
type peerKey struct{}

// withPeer stores who opened a connection in its context.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peer(c))
}

// unknownActor names a peer that the kernel does not tell.
const unknownActor = "somebody on this host"

// actor names who opened the request's connection, for people.
func actor(ctx context.Context) string {
	if p, ok := ctx.Value(peerKey{}).(string); ok {
		return p
	}
	return unknownActor
}

// peer names the process at the other end by the credentials it had when it connected.
func peer(c net.Conn) string {
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return unknownActor
	}
	by, err := pane.Credentials(conn)
	if err != nil {
		return unknownActor
	}
	name := "uid " + strconv.Itoa(int(by.Uid))
	if u, err := user.LookupId(strconv.Itoa(int(by.Uid))); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("%s (uid %d, process %d)", name, by.Uid, by.Pid)
}
