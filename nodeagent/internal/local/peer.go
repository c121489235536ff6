package local

import (
	"context"
	"fmt"
	"net"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// peerKey is the context key of a connection's peer.
type peerKey struct{}

// withPeer stores who opened a connection in its context.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peer(c))
}

// actor names who opened the request's connection, for people.
func actor(ctx context.Context) string {
	if p, ok := ctx.Value(peerKey{}).(string); ok {
		return p
	}
	return "somebody on this host"
}

// peer names the process at the other end by the credentials it had when it connected.
func peer(c net.Conn) string {
	const unknown = "somebody on this host"
	u, ok := c.(*net.UnixConn)
	if !ok {
		return unknown
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return unknown
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}) != nil || err != nil {
		return unknown
	}
	name := "uid " + strconv.Itoa(int(cred.Uid))
	if u, err := user.LookupId(strconv.Itoa(int(cred.Uid))); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("%s (uid %d, process %d)", name, cred.Uid, cred.Pid)
}
