// Package ports asks the operating system whether a stranger holds a port.
package ports

import (
	"errors"
	"net"
	"strconv"
	"syscall"

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
