package runtime

import (
	"net"
	"net/netip"
)

// Loopback is where what runs on the host is asked, unless it is elsewhere.
const Loopback = "127.0.0.1"

// OwnAddress is an address if it is one of the host's. What an instance is advertised
// under may be a name, or a router's.
func OwnAddress(address string) (own netip.Addr, ok bool) {
	wanted, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Addr{}, false
	}
	if wanted.Is4() && wanted.IsLoopback() { // all of 127.0.0.0/8 is, though it is shown as one
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

// Networks of a container that publish no ports: the host's own one, and none at all.
const (
	NetworkHost = "host"
	NetworkNone = "none"
)

// Publishes reports whether the ports are on the host only by being published there.
func (c *Container) Publishes() bool { return c.Network != NetworkHost && c.Network != NetworkNone }

// PublishedOn is where the ports are published: the container's address if it is one of
// the host's, else all addresses.
func (c *Container) PublishedOn() netip.Addr {
	if own, ok := OwnAddress(c.Address); ok {
		return own
	}
	return netip.IPv4Unspecified()
}
