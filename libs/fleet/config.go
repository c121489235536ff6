package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// ClusterSettings is what of the gateways' settings is set for the whole cluster. What is nil
// is as each gateway's own settings have it.
type ClusterSettings struct {
	// AllowedOrigins are those browsers may call from; "*" allows any, an empty list none.
	AllowedOrigins *[]string `json:"http.cors.allowedOrigins,omitempty"`
	// AllowedSubnets are whence the API may be used, as CIDRs; an empty list allows any.
	AllowedSubnets *[]string `json:"network.allowedSubnets,omitempty"`
	// TrustedProxies are those whose X-Forwarded-For is believed, as CIDRs.
	TrustedProxies *[]string `json:"network.trustedProxies,omitempty"`
	// AllowedEgress are hosts and networks that sources and the catalog are fetched from although
	// their addresses are not of the public network.
	AllowedEgress *[]string `json:"network.allowedEgress,omitempty"`
	// PerIPPerMinute bounds requests without a valid token, LoginsPerMinute attempts to log
	// in, each per minute and address; 0 sets no limit.
	PerIPPerMinute  *int `json:"security.rateLimiting.perIpPerMinute,omitempty"`
	LoginsPerMinute *int `json:"security.rateLimiting.loginsPerMinute,omitempty"`
	// PerUserPerMinute bounds requests of a user; 0 sets no limit.
	PerUserPerMinute *int `json:"security.rateLimiting.perUserPerMinute,omitempty"`
	// SessionMinutes is how long the token of a login is good for.
	SessionMinutes *int `json:"security.jwtExpirationMinutes,omitempty"`
	// LockoutEnabled false locks out nobody, whatever else is set. LockoutFailures are the wrong
	// passwords within LockoutWindow seconds that lock a user name out for LockoutSeconds.
	LockoutEnabled  *bool `json:"security.lockout.enabled,omitempty"`
	LockoutFailures *int  `json:"security.lockout.maxFailures,omitempty"`
	LockoutWindow   *int  `json:"security.lockout.windowSeconds,omitempty"`
	LockoutSeconds  *int  `json:"security.lockout.lockSeconds,omitempty"`
	// ResetMinutes is how long a token that resets a password is good for.
	ResetMinutes *int `json:"security.passwordReset.ttlMinutes,omitempty"`
}

// ConfigVersion is the cluster's settings as somebody made them. It is never changed; the
// latest hundred are kept. The gateway writes it.
type ConfigVersion struct {
	Rev
	Version int64 `json:"version"` // from 1
	// Parent is the version it was made from; 0 for none.
	Parent int64 `json:"parent"`
	// Patch is all it sets, also what the parent had set.
	Patch  ClusterSettings `json:"patch"`
	Reason string          `json:"reason,omitempty"`
	By     string          `json:"by"`
	At     time.Time       `json:"at"`
}

// The ways in which a version becomes the active one.
const (
	ConfigPatched    = "PATCH"
	ConfigRolledBack = "ROLLBACK"
)

// ConfigActive says which version holds. There is one, none before the first version. The
// gateway writes it.
type ConfigActive struct {
	Rev
	// Version is 0 after a rollback to what the gateways' own settings say.
	Version int64 `json:"version"`
	// Before is the version that held until then.
	Before int64 `json:"before"`
	// Patch is the version's.
	Patch ClusterSettings `json:"patch"`
	// Action is ConfigPatched or ConfigRolledBack.
	Action string    `json:"action"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

const (
	maxConfigEntries = 100
	// MaxEgressEntries is how many hosts and networks ClusterSettings.AllowedEgress has.
	MaxEgressEntries = 1000
	maxConfigRate    = 1_000_000
	// maxConfigReason bounds what is said about a version, in bytes.
	maxConfigReason = 256
	maxOrigin       = 256
	// MaxHostName is the length of the longest name of a host, in bytes.
	MaxHostName = 253

	maxSessionMinutes = 30 * 24 * 60
	maxResetMinutes   = 24 * 60
	// maxLockoutFailures is the largest number of failures: the time of each is kept.
	maxLockoutFailures = 100
	maxLockoutSeconds  = 24 * 60 * 60
)

// configKeys are all keys, and what each takes.
var configKeys = map[string]string{
	"http.cors.allowedOrigins":               "a list of texts",
	"network.allowedSubnets":                 "a list of texts",
	"network.trustedProxies":                 "a list of texts",
	"network.allowedEgress":                  "a list of texts",
	"security.rateLimiting.perIpPerMinute":   "a whole number",
	"security.rateLimiting.loginsPerMinute":  "a whole number",
	"security.rateLimiting.perUserPerMinute": "a whole number",
	"security.jwtExpirationMinutes":          "a whole number",
	"security.lockout.enabled":               "true or false",
	"security.lockout.maxFailures":           "a whole number",
	"security.lockout.windowSeconds":         "a whole number",
	"security.lockout.lockSeconds":           "a whole number",
	"security.passwordReset.ttlMinutes":      "a whole number",
}

// ByKey are the settings by their keys, in JSON.
func (p ClusterSettings) ByKey() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if b, err := json.Marshal(p); err == nil { // texts and numbers
		_ = json.Unmarshal(b, &out)
	}
	return out
}

// With is the patch with some keys set anew, of which null takes one away. Invalid errors
// name each key that there is not, and each value that does not do; origins and subnets are
// in their usual form afterwards.
func (p ClusterSettings) With(changes map[string]json.RawMessage) (ClusterSettings, []error) {
	var problems []error
	all := p.ByKey()
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		takes, ok := configKeys[key]
		switch {
		case !ok:
			problems = append(problems, errs.Field(clip(key), "is no setting of the cluster; there are %s", strings.Join(slices.Sorted(maps.Keys(configKeys)), ", ")))
		case bytes.Equal(bytes.TrimSpace(changes[key]), []byte("null")):
			delete(all, key)
		default:
			if _, err := configOf(map[string]json.RawMessage{key: changes[key]}); err != nil {
				problems = append(problems, errs.Field(key, "must be %s, or null", takes))
				continue
			}
			all[key] = changes[key]
		}
	}
	if len(problems) > 0 {
		return p, problems
	}
	next, err := configOf(all)
	if err != nil {
		return p, []error{errs.New(errs.Invalid, "the settings cannot be read")}
	}
	return next, next.normalize()
}

func configOf(keys map[string]json.RawMessage) (ClusterSettings, error) {
	var p ClusterSettings
	b, err := json.Marshal(keys)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}

// normalize brings the values into their usual form, and lists what is wrong with them.
func (p *ClusterSettings) normalize() []error {
	var out problems
	list := func(key string, values *[]string, usual func(string) (string, error), most int) {
		if values == nil {
			return
		}
		out.check(len(*values) <= most, key, "must have at most %d entries", most)
		for n, v := range *values {
			u, err := usual(v)
			if err != nil {
				out.check(false, fmt.Sprintf("%s[%d]", key, n), "%s", err.Error())
				continue
			}
			(*values)[n] = u
		}
		slices.Sort(*values)
		*values = slices.Compact(*values)
	}
	rate := func(key string, v *int) {
		out.check(v == nil || *v >= 0 && *v <= maxConfigRate, key, "must be between 0, which sets no limit, and %d", maxConfigRate)
	}
	between := func(key string, v *int, most int) {
		out.check(v == nil || *v >= 1 && *v <= most, key, "must be between 1 and %d", most)
	}
	list("http.cors.allowedOrigins", p.AllowedOrigins, usualOrigin, maxConfigEntries)
	list("network.allowedSubnets", p.AllowedSubnets, Subnet, maxConfigEntries)
	list("network.trustedProxies", p.TrustedProxies, proxySubnet, maxConfigEntries)
	list("network.allowedEgress", p.AllowedEgress, EgressEntry, MaxEgressEntries)
	rate("security.rateLimiting.perIpPerMinute", p.PerIPPerMinute)
	rate("security.rateLimiting.loginsPerMinute", p.LoginsPerMinute)
	rate("security.rateLimiting.perUserPerMinute", p.PerUserPerMinute)
	between("security.jwtExpirationMinutes", p.SessionMinutes, maxSessionMinutes)
	between("security.lockout.maxFailures", p.LockoutFailures, maxLockoutFailures)
	between("security.lockout.windowSeconds", p.LockoutWindow, maxLockoutSeconds)
	between("security.lockout.lockSeconds", p.LockoutSeconds, maxLockoutSeconds)
	between("security.passwordReset.ttlMinutes", p.ResetMinutes, maxResetMinutes)
	return out.list
}

// ValidateReason is an Invalid error for a reason that is too long, or has control characters.
func ValidateReason(reason string) error {
	if len(reason) > maxConfigReason || HasControl(reason) {
		return errs.Field("reason", "must be at most %d bytes without control characters", maxConfigReason)
	}
	return nil
}

// usualOrigin is an origin as browsers send it: "*", or scheme, host and port in lower case. The
// error is a sentence's end about a value that is none.
func usualOrigin(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	u, err := url.Parse(s)
	if err != nil || len(s) > maxOrigin || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") ||
		u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(s, "?#*, ") {
		return "", fmt.Errorf("%q is no origin: write it like https://panel.example.org or http://localhost:3000, without a path, or * for any", clip(s))
	}
	return strings.ToLower(s), nil
}

// Subnet is a network in CIDR form; an address is the network of itself. The error is a
// sentence's end about a value that is none.
func Subnet(s string) (string, error) {
	p, err := netip.ParsePrefix(s)
	if a, errA := netip.ParseAddr(s); errA == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	const mapped = 96 // of an IPv6 address are before an IPv4 one
	if err == nil && p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	if err != nil {
		return "", fmt.Errorf("%q is no network: write it like 10.0.0.0/8, fd00::/8 or 192.0.2.7", clip(s))
	}
	return p.Masked().String(), nil
}

// hostPattern is the name of a host in a URL.
var hostPattern = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// EgressEntry is an entry of an allow list for fetches in its usual form: a network in CIDR form,
// or the name of a host in lower case. The error is a sentence's end about a value that is
// neither.
func EgressEntry(s string) (string, error) {
	if u, err := Subnet(s); err == nil {
		return u, nil
	}
	host := strings.ToLower(strings.TrimSuffix(s, "."))
	if len(host) > MaxHostName || !hostPattern.MatchString(host) {
		return "", fmt.Errorf("%q is neither a host nor a network: write it like git.example.org, 10.0.0.0/8 or fd00::7, without scheme and port", clip(s))
	}
	return host, nil
}

// proxySubnet is a Subnet that is not the whole world.
func proxySubnet(s string) (string, error) {
	u, err := Subnet(s)
	if err == nil && strings.HasSuffix(u, "/0") {
		return "", errors.New("would believe anybody what address they come from: name the proxies")
	}
	return u, err
}
