// Package egress opens the connections to URLs that users enter: template sources, repositories,
// buckets and artifacts of the catalog.
//
// Such a connection may only lead to the public Internet or to hosts on the allow list. The
// address is checked when the connection is opened, after the name was resolved, so neither
// redirects nor changing DNS answers can bypass the check. Connections between Orrery's services
// and to addresses in a service's settings do not use this package.
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

// Setting is the key of the allow list in the cluster's settings.
const Setting = "network.allowedEgress"

// Policy says which connections are allowed. The zero value allows only the public Internet and
// uses no proxy.
type Policy struct {
	// Allowed returns the current allow list. It may wait until the list is known. Nil means an
	// empty list.
	Allowed func(context.Context) (Allowed, error)
	// Proxy is the proxy for http and https requests, or nil. Proxies in the environment are
	// ignored.
	Proxy *url.URL
	// Operator disables the check, because the operator chose the address in the service's
	// settings.
	Operator bool
}

// check returns a Denied error that names the address if the host may not be reached at it. It
// reads the list only for addresses that are not public.
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
	return errs.New(errs.Denied, "%s is %s, which is blocked by default: an administrator can add the host or its network to the setting %s of the cluster",
		what, Kind(a), Setting)
}

// Dial connects like net.Dialer. The error is Denied if the name resolves to a refused address.
func (p Policy) Dial(ctx context.Context, timeout time.Duration, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errs.WrapAs(errs.Invalid, "egress.Dial", err)
	}
	d := net.Dialer{Timeout: timeout, ControlContext: func(ctx context.Context, _, resolved string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(resolved)
		if err != nil {
			return errs.WrapAs(errs.Internal, "egress.Dial", err)
		}
		return p.check(ctx, host, at.Addr())
	}}
	return d.DialContext(ctx, network, address)
}

// DialHTTP is Dial for http.Transport.DialContext. With a proxy, all connections lead to the
// proxy, which the operator chose.
func (p Policy) DialHTTP(ctx context.Context, timeout time.Duration, network, address string) (net.Conn, error) {
	p.Operator = p.Operator || p.Proxy != nil
	return p.Dial(ctx, timeout, network, address)
}

// ProxyOf implements http.Transport.Proxy. Because the proxy opens the connection itself, the host
// of each request is checked here. Names that do not resolve here are passed on to the proxy.
func (p Policy) ProxyOf(r *http.Request) (*url.URL, error) {
	if p.Proxy == nil {
		return nil, nil
	}
	host := r.URL.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		return p.Proxy, p.check(r.Context(), host, a)
	}
	if endsInNumber(host) {
		return nil, errs.New(errs.Denied, "%s is an unusual form of an address: use a name, or an address like 192.0.2.1", host)
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

// endsInNumber reports whether the last label of a host is a number. Many resolvers read such
// hosts as addresses: 127.1 and 0x7f000001 are loopback.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	_, err := strconv.ParseUint(host[strings.LastIndexByte(host, '.')+1:], 0, 64)
	return err == nil
}
