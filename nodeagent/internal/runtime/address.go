package runtime

import (
	"net"
	"net/netip"
)

// Loopback is the default address of programs on the host.
const Loopback = "127.0.0.1"

// OwnAddress parses an address; ok is true if it is one of the host's. The advertised address
// of an instance may also be a name, or belong to a router.
func OwnAddress(address string) (own netip.Addr, ok bool) {
	wanted, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Addr{}, false
	}
	if wanted.Is4() && wanted.IsLoopback() { // all of 127.0.0.0/8 is local, though only one address is listed
		return wanted, true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, false
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == wanted {
			return wanted, true
		}
	}
	return netip.Addr{}, false
}

// Container networks that publish no ports: the host's network, and none.
const (
	NetworkHost = "host"
	NetworkNone = "none"
)

// Publishes reports whether the ports have to be published to be reachable on the host.
func (c *Container) Publishes() bool { return c.Network != NetworkHost && c.Network != NetworkNone }

// PublishedOn returns the address on which ports are published: the container's address if it
// is one of the host's, else all addresses.
func (c *Container) PublishedOn() netip.Addr {
	if own, ok := OwnAddress(c.Address); ok {
		return own
	}
	return netip.IPv4Unspecified()
}
