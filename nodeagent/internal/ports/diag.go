package ports

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The kernel's sock_diag interface, as linux/inet_diag.h and linux/sock_diag.h have it.
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	requestSize  = 56 // struct inet_diag_req_v2
	answerSize   = 72 // struct inet_diag_msg
	allStates    = ^uint32(0)
)

// The states of TCP sockets that a program may leave behind, as net/tcp_states.h has them.
const (
	finWait1  = 4
	finWait2  = 5
	timeWait  = 6
	closeWait = 8
	lastAck   = 9
	closing   = 11
)

// socket is a socket as the kernel shows it.
type socket struct {
	state  uint8
	uid    uint32
	inode  uint32 // 0 when no program has it open
	remote netip.AddrPort
	// expires is when the kernel's timer for it runs out; 0 without one.
	expires time.Duration
}

// closing reports whether the socket is that of a connection that is being closed.
func (s socket) closing() bool {
	switch s.state {
	case finWait1, finWait2, timeWait, closeWait, lastAck, closing:
		return true
	}
	return false
}

// socketsOf lists the sockets whose local port is port.
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
	var all []socket
	var failed error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		answers, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: diagByFamily, Flags: netlink.Request | netlink.Dump},
			Data:   request(family, number, port),
		})
		if err != nil { // a host without IPv6 has no such sockets
			failed = errors.Join(failed, err)
			continue
		}
		for _, m := range answers {
			if s, local, ok := parse(m.Data); ok && local == port {
				all = append(all, s)
			}
		}
	}
	if len(all) > 0 {
		failed = nil
	}
	return all, failed
}

// request is a struct inet_diag_req_v2 for the sockets of a local port.
func request(family, protocol uint8, port int) []byte {
	b := make([]byte, requestSize)
	b[0], b[1] = family, protocol
	binary.NativeEndian.PutUint32(b[4:], allStates)
	binary.BigEndian.PutUint16(b[8:], uint16(port))
	return b
}

// parse reads a struct inet_diag_msg. ok is false when it is none.
func parse(b []byte) (s socket, local int, ok bool) {
	if len(b) < answerSize {
		return socket{}, 0, false
	}
	port := binary.BigEndian.Uint16(b[6:])
	address := netip.AddrFrom16([16]byte(b[24:40])).Unmap()
	if b[0] == unix.AF_INET {
		address = netip.AddrFrom4([4]byte(b[24:28]))
	}
	return socket{
		state: b[1], remote: netip.AddrPortFrom(address, port),
		expires: time.Duration(binary.NativeEndian.Uint32(b[52:])) * time.Millisecond,
		uid:     binary.NativeEndian.Uint32(b[64:]), inode: binary.NativeEndian.Uint32(b[68:]),
	}, int(binary.BigEndian.Uint16(b[4:])), true
}
