// Package ports tests whether a port can be bound and, if not, which program uses it.
//
// A program that ends leaves connections behind. The kernel keeps them for about a minute
// (FIN_WAIT2, TIME_WAIT). If the program did not set SO_REUSEADDR, the port cannot be
// bound while they last. sock_diag(7) shows that no program owns them, and so
// distinguishes them from the sockets of a running program.
package ports

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
)

// Probe binds a port briefly, for TCP and UDP. It returns nil for a free port and otherwise
// what uses it. The error is Unavailable if the port cannot be bound for another reason.
func Probe(port int) (*Busy, error) {
	for again := false; ; again = true {
		protocol, err := bind(port)
		if err == nil {
			return nil, nil
		}
		var why syscall.Errno
		if !errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &why) {
			return nil, &errs.Error{Op: "ports.Probe", Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf("port %d (%s) cannot be bound: %s", port, protocol, why)}
		}
		busy := inspect(port, protocol)
		if len(busy.sockets) > 0 || again { // the sockets may have been closed in between
			return busy, nil
		}
	}
}

// bind binds a port and releases it. protocol is the one that cannot be bound. It holds
// syscall.ForkLock for writing: otherwise a child could inherit the socket until its exec, and
// its server or another probe would find the port in use.
func bind(port int) (protocol string, err error) {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	address := ":" + strconv.Itoa(port)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "TCP", err
	}
	_ = l.Close()
	u, err := net.ListenPacket("udp", address)
	if err != nil {
		return "UDP", err
	}
	_ = u.Close()
	return "", nil
}

// Busy describes what uses a port.
type Busy struct {
	Port     int
	Protocol string
	// sockets are those of running programs, or the leftover ones if there are none.
	// Connected sockets of running programs count only if there are no others. Empty if the
	// kernel shows none.
	sockets []socket
	// by caches the result of By.
	by string
}

// inspect finds the sockets that use a port. Without sock_diag it finds none.
func inspect(port int, protocol string) *Busy {
	b := &Busy{Port: port, Protocol: protocol}
	all, err := socketsOf(port, protocol)
	if err != nil {
		return b
	}
	var connected, left []socket
	for _, s := range all {
		switch {
		case s.inode != 0 && !s.peer:
			b.sockets = append(b.sockets, s)
		case s.inode != 0:
			connected = append(connected, s)
		case s.closing():
			left = append(left, s)
		}
	}
	if len(b.sockets) == 0 {
		b.sockets = connected
	}
	if len(b.sockets) == 0 {
		b.sockets = left
	}
	return b
}

// Leftover reports whether only connections of programs that have ended use the port. They
// disappear by themselves.
func (b *Busy) Leftover() bool { return len(b.sockets) > 0 && b.sockets[0].inode == 0 }

// String is a sentence. It names the running programs; see By.
func (b *Busy) String() string {
	if !b.Leftover() {
		return fmt.Sprintf("port %d (%s) is held by %s", b.Port, b.Protocol, b.By())
	}
	what := "a connection"
	if n := len(b.sockets); n > 1 {
		what = fmt.Sprintf("%d connections", n)
	}
	return fmt.Sprintf("port %d (%s) is not free yet: the kernel still keeps %s of a program that has ended, usually for a minute; a server that sets SO_REUSEADDR need not wait",
		b.Port, b.Protocol, what)
}
