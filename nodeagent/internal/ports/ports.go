// Package ports finds out whether a port can be bound and, if not, which program holds it.
//
// A program that ends leaves connections behind. The kernel keeps them for about a minute
// (FIN_WAIT2, TIME_WAIT). If the program did not set SO_REUSEADDR, the port cannot be
// bound while they last. sock_diag(7) shows that no program owns them, and so
// distinguishes them from the sockets of a program that runs.
package ports

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
)

// Probe binds a port for a moment, for TCP and for UDP. It returns what holds a port that
// is in use, and nil for one that is free. The error is Unavailable and says why the
// system refuses for another reason.
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
		busy := look(port, protocol)
		if len(busy.sockets) > 0 || again { // what was there may be gone by now
			return busy, nil
		}
	}
}

// bind binds a port and releases it. protocol is the one that cannot be bound. It holds the
// fork lock for writing: a child inherits the socket until its exec, and its server would
// find the port in use, as would another probe.
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

// Busy says what holds a port.
type Busy struct {
	Port     int
	Protocol string
	// sockets are those of programs that run, if there are any, else what other programs
	// left behind. Of programs that run, sockets with a peer count only if there are no
	// others: the connections of a server's clients do not say more. Empty when the kernel
	// shows none.
	sockets []socket
	// by is what By has found.
	by string
}

// look finds out what holds a port. A kernel without sock_diag shows nothing.
func look(port int, protocol string) *Busy {
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

// Leftover reports whether only connections of programs that have ended hold the port.
// They go by themselves.
func (b *Busy) Leftover() bool { return len(b.sockets) > 0 && b.sockets[0].inode == 0 }

// String is a sentence. Of a program that runs it has the name, see By.
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
