// Package settings has the gateway settings that can change at runtime: allowed subnets and origins,
// trusted proxies, rate limits, session lifetimes and the login lockout.
//
// The gateway's own settings apply, except for keys that the active version of the cluster
// settings sets.
package settings

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Settings are all settings at one moment. They are immutable.
type Settings struct {
	// Origins whose pages may call the API, in addition to the gateway's own. "*" allows any.
	Origins []string
	// Subnets may use the API. An empty list allows any.
	Subnets []netip.Prefix
	// Proxies are the networks whose X-Forwarded-For is trusted.
	Proxies []netip.Prefix
	// Egress lists non-public networks that sources and the catalog may be downloaded from. The
	// template service enforces it; a gateway only shows it.
	Egress []string
	// Anonymous limits requests without a valid token, Logins login attempts, each per minute and
	// address. 0 is no limit.
	Anonymous, Logins int
	// Names limits login attempts per user name, Users requests per user, Tickets stream tickets per
	// user, each per minute. 0 is no limit. The cluster settings cannot change Names and Tickets.
	Names, Users, Tickets int
	// Session is the lifetime of login tokens, Reset that of password reset tokens.
	Session, Reset time.Duration
	Lockout        Lockout
}

// Lockout configures when a user name is locked.
type Lockout struct {
	// Off disables the lockout.
	Off bool
	// Failures is the number of wrong passwords within Window that locks a name for Duration.
	Failures         int
	Window, Duration time.Duration
}

// Prefixes parses CIDR networks. It returns Invalid, naming the field, for an invalid one.
func Prefixes(field string, cidrs []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range cidrs {
		usual, err := cluster.Subnet(text)
		if err != nil {
			return nil, errs.Field(field, "%s", err.Error())
		}
		out = append(out, netip.MustParsePrefix(usual))
	}
	return out, nil
}

// With returns the settings with the patch of the cluster settings applied.
func (s Settings) With(p cluster.ClusterSettings) Settings {
	if p.AllowedOrigins != nil {
		s.Origins = *p.AllowedOrigins
	}
	if p.AllowedSubnets != nil {
		s.Subnets = parsed(*p.AllowedSubnets)
	}
	if p.TrustedProxies != nil {
		s.Proxies = parsed(*p.TrustedProxies)
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
	setDuration(&s.Session, p.SessionMinutes, time.Minute)
	setDuration(&s.Reset, p.ResetMinutes, time.Minute)
	setDuration(&s.Lockout.Window, p.LockoutWindow, time.Second)
	setDuration(&s.Lockout.Duration, p.LockoutSeconds, time.Second)
	return s
}

// setDuration sets *d to *n units if n is not nil.
func setDuration(d *time.Duration, n *int, unit time.Duration) {
	if n != nil {
		*d = time.Duration(*n) * unit
	}
}

// count returns a duration as a number of units.
func count(d, unit time.Duration) *int { return new(int(d / unit)) }

// parsed parses networks that were validated when they were stored. An invalid one becomes a prefix
// that matches nothing, so that the list does not become empty, which would allow all.
func parsed(cidrs []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(cidrs))
	for _, text := range cidrs {
		p, _ := netip.ParsePrefix(text) // the zero prefix contains nothing
		out = append(out, p)
	}
	return out
}

// Patch returns the settings as a patch that sets all keys.
func (s Settings) Patch() cluster.ClusterSettings {
	texts := func(prefixes []netip.Prefix) *[]string {
		out := make([]string, 0, len(prefixes))
		for _, p := range prefixes {
			out = append(out, p.String())
		}
		return &out
	}
	origins, egress := append([]string{}, s.Origins...), append([]string{}, s.Egress...)
	return cluster.ClusterSettings{
		AllowedOrigins: &origins, AllowedSubnets: texts(s.Subnets), TrustedProxies: texts(s.Proxies), AllowedEgress: &egress,
		PerIPPerMinute: &s.Anonymous, LoginsPerMinute: &s.Logins, PerUserPerMinute: &s.Users,
		SessionMinutes: count(s.Session, time.Minute), ResetMinutes: count(s.Reset, time.Minute),
		LockoutEnabled: new(!s.Lockout.Off), LockoutFailures: &s.Lockout.Failures,
		LockoutWindow: count(s.Lockout.Window, time.Second), LockoutSeconds: count(s.Lockout.Duration, time.Second),
	}
}

// Admits reports whether an address may use the API. The host itself always may, so that a
// setting that locks everybody out can be undone.
func (s Settings) Admits(from netip.Addr) bool {
	return len(s.Subnets) == 0 || from.IsLoopback() || within(s.Subnets, from)
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Trusts reports whether a peer is a trusted proxy.
func (s Settings) Trusts(peer netip.Addr) bool { return within(s.Proxies, peer) }

// Client returns the client address of a request that came from peer: peer itself or, if peer is a
// trusted proxy, the last address in X-Forwarded-For that is not a trusted proxy. The client may
// have forged the addresses before that one.
func (s Settings) Client(peer netip.Addr, forwarded []string) netip.Addr {
	at := peer
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !within(s.Proxies, at) {
			break
		}
		next, ok := Address(strings.TrimSpace(hop))
		if !ok { // the proxy did not add a valid address
			break
		}
		at = next
	}
	return at
}

// Address parses an address without its port and zone, in the form used for matching networks.
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

// Live has the settings in effect. It is safe for concurrent use.
type Live struct {
	own Settings
	now atomic.Pointer[Settings]
}

// New returns the gateway's own settings, until OnBatch sees cluster settings.
func New(own Settings) *Live {
	l := &Live{own: own}
	l.now.Store(&own)
	return l
}

// Now returns the settings in effect.
func (l *Live) Now() Settings { return *l.now.Load() }

// Under returns the settings as they would be with a patch of the cluster settings.
func (l *Live) Under(p cluster.ClusterSettings) Settings { return l.own.With(p) }

// OnBatch applies a changed version of the cluster settings. Subscribe it to the view.
func (l *Live) OnBatch(b view.Batch) {
	if slices.ContainsFunc(b.Changes, func(c view.Change) bool { return c.Kind == view.KindConfigActive }) {
		next := l.own.With(b.After.Config().Patch)
		l.now.Store(&next)
	}
}
