// Package settings has those of the gateway's settings that can change while it serves: from
// where it may be used, by whose pages, whose word it takes for a client's address, how
// often one may ask, how long logins last and when they are locked out.
//
// A gateway's own settings hold until a version of the cluster's says otherwise, key by key.
package settings

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Settings are all of them at one moment. They are never changed.
type Settings struct {
	// Origins are those browsers may call from beside the gateway's own; "*" allows any.
	Origins []string
	// Subnets are whence the API may be used; none allows any.
	Subnets []netip.Prefix
	// Proxies are those whose X-Forwarded-For is believed.
	Proxies []netip.Prefix
	// Egress is what sources and the catalog may be fetched from beside the public network. The
	// template service follows it; a gateway only shows it.
	Egress []string
	// Anonymous are requests without a valid token, Logins attempts to log in, each per
	// minute and address; 0 sets no limit.
	Anonymous, Logins int
	// Names are attempts to log in under a user name, Users requests of a user, Tickets the
	// tickets for streams a user gets, each per minute; 0 sets no limit. No version sets Names
	// and Tickets.
	Names, Users, Tickets int
	// Session is how long the token of a login is good for, Reset one that resets a password.
	Session, Reset time.Duration
	Lockout        Lockout
}

// Lockout says when a user name is locked out.
type Lockout struct {
	// Off locks out nobody, whatever else is set.
	Off bool
	// Failures is how many wrong passwords within Window lock a name out for Duration.
	Failures         int
	Window, Duration time.Duration
}

// Prefixes are networks as CIDRs. Invalid, naming the field, when one is none.
func Prefixes(field string, cidrs []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range cidrs {
		usual, err := fleet.Subnet(text)
		if err != nil {
			return nil, errs.Field(field, "%s", err.Error())
		}
		out = append(out, netip.MustParsePrefix(usual))
	}
	return out, nil
}

// With are the settings where a patch of the cluster's says otherwise.
func (s Settings) With(p fleet.ClusterSettings) Settings {
	if p.AllowedOrigins != nil {
		s.Origins = *p.AllowedOrigins
	}
	if p.AllowedSubnets != nil {
		s.Subnets = readable(*p.AllowedSubnets)
	}
	if p.TrustedProxies != nil {
		s.Proxies = readable(*p.TrustedProxies)
	}
	if p.AllowedEgress != nil {
		s.Egress = *p.AllowedEgress
	}
	if p.PerIPPerMinute != nil {
		s.Anonymous = *p.PerIPPerMinute
	}
	if p.LoginsPerMinute != nil {
		s.Logins = *p.LoginsPerMinute
	}
	if p.PerUserPerMinute != nil {
		s.Users = *p.PerUserPerMinute
	}
	if p.LockoutEnabled != nil {
		s.Lockout.Off = !*p.LockoutEnabled
	}
	if p.LockoutFailures != nil {
		s.Lockout.Failures = *p.LockoutFailures
	}
	lasts(&s.Session, p.SessionMinutes, time.Minute)
	lasts(&s.Reset, p.ResetMinutes, time.Minute)
	lasts(&s.Lockout.Window, p.LockoutWindow, time.Second)
	lasts(&s.Lockout.Duration, p.LockoutSeconds, time.Second)
	return s
}

// lasts sets how long something lasts, if that is said, in units.
func lasts(d *time.Duration, n *int, unit time.Duration) {
	if n != nil {
		*d = time.Duration(*n) * unit
	}
}

// count is how many units something lasts.
func count(d, unit time.Duration) *int { return new(int(d / unit)) }

// readable are those of a version's networks that can be read: whoever wrote it had them
// checked. One that cannot be is a network nobody comes from, so that a list of nothing else
// does not become one that allows all.
func readable(cidrs []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(cidrs))
	for _, text := range cidrs {
		p, _ := netip.ParsePrefix(text) // the zero prefix contains nothing
		out = append(out, p)
	}
	return out
}

// Patch are the settings as a version would say them all.
func (s Settings) Patch() fleet.ClusterSettings {
	texts := func(prefixes []netip.Prefix) *[]string {
		out := make([]string, 0, len(prefixes))
		for _, p := range prefixes {
			out = append(out, p.String())
		}
		return &out
	}
	origins, egress := append([]string{}, s.Origins...), append([]string{}, s.Egress...)
	return fleet.ClusterSettings{
		AllowedOrigins: &origins, AllowedSubnets: texts(s.Subnets), TrustedProxies: texts(s.Proxies), AllowedEgress: &egress,
		PerIPPerMinute: &s.Anonymous, LoginsPerMinute: &s.Logins, PerUserPerMinute: &s.Users,
		SessionMinutes: count(s.Session, time.Minute), ResetMinutes: count(s.Reset, time.Minute),
		LockoutEnabled: new(!s.Lockout.Off), LockoutFailures: &s.Lockout.Failures,
		LockoutWindow: count(s.Lockout.Window, time.Second), LockoutSeconds: count(s.Lockout.Duration, time.Second),
	}
}

// Admits reports whether the API may be used from an address. From the host itself it always
// may, or nobody could take back what shuts everybody out.
func (s Settings) Admits(from netip.Addr) bool {
	return len(s.Subnets) == 0 || from.IsLoopback() || within(s.Subnets, from)
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Client is where a request comes from that peer sent: peer itself, or, when that is a proxy
// which is trusted, the last address of its X-Forwarded-For headers that is none. What
// stands before that one, the client may have made up.
func (s Settings) Client(peer netip.Addr, forwarded []string) netip.Addr {
	at := peer
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !within(s.Proxies, at) {
			break
		}
		next, ok := Address(strings.TrimSpace(hop))
		if !ok { // the proxy did not say where it had it from
			break
		}
		at = next
	}
	return at
}

// Address is an address without its port, as networks are compared with it.
func Address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		ap, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		a = ap.Addr()
	}
	return a.Unmap().WithZone(""), true
}

// Live are the settings that hold now. Its methods may be called by many at once.
type Live struct {
	own Settings
	now atomic.Pointer[Settings]
}

// New are settings of the gateway's own until Hear hears of others.
func New(own Settings) *Live {
	l := &Live{own: own}
	l.now.Store(&own)
	return l
}

// Now are those that hold now.
func (l *Live) Now() Settings { return *l.now.Load() }

// Under are those that would hold under a version's patch.
func (l *Live) Under(p fleet.ClusterSettings) Settings { return l.own.With(p) }

// Hear follows the version that holds. It is a listener of the view.
func (l *Live) Hear(b view.Batch) {
	if slices.ContainsFunc(b.Changes, func(c view.Change) bool { return c.Kind == view.KindConfigActive }) {
		next := l.own.With(b.After.Config().Patch)
		l.now.Store(&next)
	}
}
