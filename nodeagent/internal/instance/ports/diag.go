package ports

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// The kernel's sock_diag interface; see linux/inet_diag.h and linux/sock_diag.h.
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	requestSize  = 56 // struct inet_diag_req_v2
	answerSize   = 72 // struct inet_diag_msg
	allStates    = ^uint32(0)
)

// The states of TCP sockets that a program may leave behind; see net/tcp_states.h.
const (
	finWait1  = 4
	finWait2  = 5
	timeWait  = 6
	closeWait = 8
	lastAck   = 9
	closing   = 11
)

// socket is a socket as reported by the kernel.
type socket struct {
	state uint8
	uid   uint32
	inode uint32 // 0 if no process has it open
	// peer is true if it is connected.
	peer bool
}

// closing reports whether the socket belongs to a connection that is being closed.
func (s socket) closing() bool {
	switch s.state {
	case finWait1, finWait2, timeWait, closeWait, lastAck, closing:
		return true
	}
	return false
}

// Visible returns nil if the kernel shows the sockets of a port. Without that, leftover
// connections cannot be distinguished from the sockets of a running program.
func Visible() error {
	const some = 1 // any port; it need not have sockets
	_, tcp := socketsOf(some, "TCP")
	_, udp := socketsOf(some, "UDP")
	if err := errors.Join(tcp, udp); err != nil {
		return &errs.Error{Op: "ports.Visible", Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf(
			"the kernel does not show which sockets use a port (%v): load its modules tcp_diag and udp_diag, or let the agent use sock_diag(7)", err)}
	}
	return nil
}

// socketsOf lists the sockets with a local port. It ignores a missing IPv6.
func socketsOf(port int, protocol string) ([]socket, error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	number := uint8(unix.IPPROTO_TCP)
	if protocol == "UDP" {
		number = unix.IPPROTO_UDP
	}
	all, err := dump(conn, unix.AF_INET, number, port)
	if err != nil {
		return nil, err
	}
	more, err := dump(conn, unix.AF_INET6, number, port)
	if err != nil {
		return all, nil
	}
	return append(all, more...), nil
}

// dump lists the sockets of one family.
func dump(conn *netlink.Conn, family, protocol uint8, port int) (all []socket, err error) {
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: diagByFamily, Flags: netlink.Request | netlink.Dump},
		Data:   request(family, protocol, port),
	})
	if err != nil {
		return nil, err
	}
	for _, m := range answers {
		if s, local, ok := parse(m.Data); ok && local == port {
			all = append(all, s)
		}
	}
	return all, nil
}

// request encodes a struct inet_diag_req_v2 for the sockets of a local port.
func request(family, protocol uint8, port int) []byte {
	b := make([]byte, requestSize)
	b[0], b[1] = family, protocol
	binary.NativeEndian.PutUint32(b[4:], allStates)
	binary.BigEndian.PutUint16(b[8:], uint16(port))
	return b
}

// parse decodes a struct inet_diag_msg. ok is false if it is invalid.
func parse(b []byte) (s socket, local int, ok bool) {
	if len(b) < answerSize {
		return socket{}, 0, false
	}
	return socket{
		state: b[1], peer: binary.BigEndian.Uint16(b[6:]) != 0,
		uid: binary.NativeEndian.Uint32(b[64:]), inode: binary.NativeEndian.Uint32(b[68:]),
	}, int(binary.BigEndian.Uint16(b[4:])), true
}
