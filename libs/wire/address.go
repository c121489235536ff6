package wire

import (
	"net"
	"os"
)

// URLOf is the URL under which others reach a listener of this host. A listener
// on all addresses has none of its own: it is named by the host's name, which is
// for whoever runs the hosts to make resolvable; where it is not, a service is
// told its URL. Without a host name the address stays as it is.
func URLOf(listener net.Addr) string {
	address := listener.String()
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil && name != "" {
			address = net.JoinHostPort(name, port)
		}
	}
	return "http://" + address
}
