package wire

import (
	"net"
	"os"
)

// HostOf returns the host and port at which others reach a listener of this host. For a listener on
// all addresses it uses the host's name, which must be resolvable; otherwise configure the service's
// URL. Without a host name the address stays unchanged.
func HostOf(listener net.Addr) string {
	address := listener.String()
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil && name != "" {
			address = net.JoinHostPort(name, port)
		}
	}
	return address
}
