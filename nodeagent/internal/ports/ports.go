// Package ports asks the operating system about ports: whether a stranger holds
// one, and whether a server has opened its own.
package ports

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Free asks whether a port can be bound, for TCP and for UDP. Exhausted when
// another program holds it, Unavailable when the system refuses for another reason;
// both name port and protocol. No process is started while it tries: it would hold
// the tried port until it has become its program, and the server that the port is
// meant for would find it taken.
func Free(port int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	address := ":" + strconv.Itoa(port)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return taken(port, "TCP", err)
	}
	_ = l.Close()
	u, err := net.ListenPacket("udp", address)
	if err != nil {
		return taken(port, "UDP", err)
	}
	_ = u.Close()
	return nil
}

func taken(port int, protocol string, err error) error {
	e := errs.New(errs.Exhausted, "port %d (%s) is held by another program", port, protocol)
	var why syscall.Errno
	if !errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &why) {
		e = errs.New(errs.Unavailable, "port %d (%s) cannot be bound: %s", port, protocol, why)
	}
	e.Op, e.Err = "ports.Free", err
	return e
}

const (
	firstPause = time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// AwaitTCP waits until a port on this host accepts a connection: it tries at
// once and then at growing intervals, from a millisecond to a quarter of a second.
// It returns ctx's error, or Canceled when gone is closed first.
func AwaitTCP(ctx context.Context, port int, gone <-chan struct{}) error {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dialer := net.Dialer{Timeout: time.Second}
	for pause := firstPause; ; pause = min(pause+pause/2, maxPause) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-gone:
			timer.Stop()
			return errs.As(errs.Canceled, "ports.AwaitTCP", errors.New("the server has ended"))
		case <-ctx.Done():
			timer.Stop()
			return errs.Wrap("ports.AwaitTCP", ctx.Err())
		}
	}
}
