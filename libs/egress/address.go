package egress

import (
	"net/netip"
	"slices"
	"strings"
)

// kind is a class of addresses that are refused unless the allow list contains them.
type kind struct {
	name     string
	networks []string
}

// kinds are these classes. The first that contains an address describes it. Azure's and Alibaba's
// metadata services have addresses that no other class contains.
var kinds = [...]kind{
	{"a metadata address of a cloud", []string{
		"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
		"fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128",
	}},
	{"a loopback address", []string{"127.0.0.0/8", "::1/128"}},
	{"an unspecified address", []string{"0.0.0.0/8", "::/128"}},
	{"a link-local address", []string{"169.254.0.0/16", "fe80::/10"}},
	{"a private address", []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"}},
	{"an address of a carrier's network", []string{"100.64.0.0/10"}},
	{"a NAT64 address", []string{"64:ff9b::/96", "64:ff9b:1::/48"}},
	{"an IPv4 address inside an IPv6 address", []string{"::/96", "::ffff:0:0:0/96", "2002::/16", "2001::/32"}},
	{"a multicast address", []string{"224.0.0.0/4", "ff00::/8"}},
	{"a reserved address", []string{"192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4"}},
}

func (k kind) contains(a netip.Addr) bool {
	return slices.ContainsFunc(k.networks, func(n string) bool { return netip.MustParsePrefix(n).Contains(a) })
}

// Kind returns why an address is refused by default, such as "a private address", or "" for an
// address of the public Internet.
func Kind(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return "no address"
	}
	for _, k := range kinds {
		if k.contains(a) {
			return k.name
		}
	}
	return ""
}

// Metadata reports whether an address belongs to the metadata service of a cloud, or is
// link-local, as most such services are.
func Metadata(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	const metadata, linkLocal = 0, 3
	return kinds[metadata].contains(a) || kinds[linkLocal].contains(a)
}

// Allowed is an allow list of hosts and networks.
type Allowed struct {
	hosts    map[string]bool
	networks []netip.Prefix
}

// Parse parses an allow list. An entry is a network in CIDR form, an address, or a host name.
// Names are compared with the host of the URL and not resolved.
func Parse(entries []string) Allowed {
	out := Allowed{hosts: map[string]bool{}}
	for _, e := range entries {
		if p, err := netip.ParsePrefix(e); err == nil {
			out.networks = append(out.networks, p)
		} else if a, err := netip.ParseAddr(e); err == nil {
			out.networks = append(out.networks, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		} else {
			out.hosts[hostname(e)] = true
		}
	}
	return out
}

// hostname returns the canonical form of a host name.
func hostname(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// Permits reports whether the host of a URL may be reached at the address a.
func (l Allowed) Permits(host string, a netip.Addr) bool {
	return Kind(a) == "" || l.hosts[hostname(host)] || l.names(a.Unmap().WithZone(""))
}

// names reports whether a network of the list contains an address. For a NAT64 address, a network
// that contains all of NAT64 does not permit embedded IPv4 addresses that are themselves refused.
func (l Allowed) names(a netip.Addr) bool {
	const nat64 = 96 // bits of the well-known prefix
	for _, p := range l.networks {
		if !p.Contains(a) {
			continue
		}
		if inside, ok := embedded(a); ok && p.Bits() <= nat64 && Kind(inside) != "" && !l.names(inside) {
			continue
		}
		return true
	}
	return false
}

// embedded returns the IPv4 address inside an address of NAT64's well-known prefix.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !netip.MustParsePrefix("64:ff9b::/96").Contains(a) {
		return netip.Addr{}, false
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}
