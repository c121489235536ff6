// Package egress makes the connections that Orrery opens because a user named a URL: sources
// of templates, repositories, buckets and artifacts of the catalog.
//
// Such a URL leads to the public network, or to what the allow list names. The address is
// checked in the moment of the connection, after the name was resolved, so neither a redirect
// nor a name that resolves differently a second time leads elsewhere. Calls between Orrery's
// own services, and connections that the settings of a service name, do not go through here.
package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Setting is the key of the allow list among the settings of the cluster.
const Setting = "network.allowedEgress"

// Policy says where connections may lead. The zero value reaches the public network only and
// uses no proxy.
type Policy struct {
	// Allowed is the allow list as it is now; it may wait until the list is known. Nil is an
	// empty list.
	Allowed func(context.Context) (Allowed, error)
	// Proxy is the HTTP proxy of requests over http and https, nil for none. The environment
	// names none.
	Proxy *url.URL
	// Operator says that the operator chose the address, in the settings of the service: it is
	// not checked.
	Operator bool
}

// check is Denied, naming the address, when a host may not be reached at it. Public addresses
// do not need the list.
func (p Policy) check(ctx context.Context, host string, a netip.Addr) error {
	if p.Operator || Kind(a) == "" {
		return nil
	}
	if p.Allowed != nil {
		list, err := p.Allowed(ctx)
		if err != nil {
			return errs.Wrap("egress.check", err)
		}
		if list.Permits(host, a) {
			return nil
		}
	}
	what := a.String()
	if host != what {
		what = fmt.Sprintf("%s (%s)", what, host)
	}
	return errs.New(errs.Denied, "%s is %s, which nothing is fetched from by default: an administrator can add the host or its network to %s (POST /api/v1/cluster/config)",
		what, Kind(a), Setting)
}

// Dial connects to an address as net.Dialer does. Denied when it resolves to an address that
// the policy refuses.
func (p Policy) Dial(ctx context.Context, timeout time.Duration, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errs.As(errs.Invalid, "egress.Dial", err)
	}
	d := net.Dialer{Timeout: timeout, ControlContext: func(ctx context.Context, _, resolved string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(resolved)
		if err != nil {
			return errs.As(errs.Internal, "egress.Dial", err)
		}
		return p.check(ctx, host, at.Addr())
	}}
	return d.DialContext(ctx, network, address)
}

// DialHTTP is Dial for http.Transport.DialContext. With a proxy, every connection of the
// transport leads to the proxy, which the operator chose.
func (p Policy) DialHTTP(ctx context.Context, timeout time.Duration, network, address string) (net.Conn, error) {
	p.Operator = p.Operator || p.Proxy != nil
	return p.Dial(ctx, timeout, network, address)
}

// ProxyOf is for http.Transport.Proxy. A proxy connects to addresses that nobody here sees, so
// each request's host is checked before it is passed on; names that do not resolve here are
// left to the proxy.
func (p Policy) ProxyOf(r *http.Request) (*url.URL, error) {
	if p.Proxy == nil {
		return nil, nil
	}
	host := r.URL.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		return p.Proxy, p.check(r.Context(), host, a)
	}
	if endsInNumber(host) {
		return nil, errs.New(errs.Denied, "%s is no usual form of an address, and the proxy could read it as one: write a name, or an address like 192.0.2.1", host)
	}
	all, err := net.DefaultResolver.LookupNetIP(r.Context(), "ip", host)
	if err != nil {
		return p.Proxy, nil //nolint:nilerr // the proxy resolves it
	}
	for _, a := range all {
		if err := p.check(r.Context(), host, a); err != nil {
			return nil, err
		}
	}
	return p.Proxy, nil
}

// endsInNumber reports whether the last label of a host is a number. Resolvers of other
// programs read such hosts as addresses: 127.1 and 0x7f000001 are loopback.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	_, err := strconv.ParseUint(host[strings.LastIndexByte(host, '.')+1:], 0, 64)
	return err == nil
}
