package program

import (
	"net"
	"net/url"
	"slices"
)

// OnlyThisHost reports whether an own address, or the URL that is advertised instead of it, leads nowhere
// from other hosts although there are some: it is a loopback address, and none of others is on this host.
func OnlyThisHost(listen, advertised string, others []string) bool {
	if u, err := url.Parse(advertised); advertised != "" && err == nil {
		listen = u.Host
	}
	return loopback(listen) && !slices.ContainsFunc(others, func(e string) bool {
		u, err := url.Parse(e)
		switch {
		case err == nil && u.Scheme == "unix": // a socket is on this host
			return true
		case err == nil && u.Host != "":
			e = u.Host
		}
		return loopback(e)
	})
}

// loopback reports whether a host, with or without a port, is a loopback address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
