// Package cluster holds the records of the cluster itself: its identity and settings, the
// sessions and shards of its services, quotas, and nodes that join or leave.
package cluster

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
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// ClusterSettings are the gateway settings that apply to the whole cluster. Each gateway uses
// its own setting for a field that is nil.
type ClusterSettings struct {
	// AllowedOrigins are the origins browsers may call from. "*" allows any, an empty list none.
	AllowedOrigins *[]string `json:"http.cors.allowedOrigins,omitempty"`
	// AllowedSubnets are the networks (CIDR) that may use the API. An empty list allows any.
	AllowedSubnets *[]string `json:"network.allowedSubnets,omitempty"`
	// TrustedProxies are the networks (CIDR) whose X-Forwarded-For header is trusted.
	TrustedProxies *[]string `json:"network.trustedProxies,omitempty"`
	// AllowedEgress are hosts and networks outside the public Internet that sources and catalog
	// downloads may use.
	AllowedEgress *[]string `json:"network.allowedEgress,omitempty"`
	// PerIPPerMinute limits requests without a valid token, LoginsPerMinute login attempts. Both
	// count per address and minute; 0 means no limit.
	PerIPPerMinute  *int `json:"security.rateLimiting.perIpPerMinute,omitempty"`
	LoginsPerMinute *int `json:"security.rateLimiting.loginsPerMinute,omitempty"`
	// PerUserPerMinute limits the requests of a user per minute. 0 means no limit.
	PerUserPerMinute *int `json:"security.rateLimiting.perUserPerMinute,omitempty"`
	// SessionMinutes is the lifetime of a login token.
	SessionMinutes *int `json:"security.jwtExpirationMinutes,omitempty"`
	// LockoutEnabled set to false disables lockouts. A user name with LockoutFailures wrong
	// passwords within LockoutWindow seconds is locked for LockoutSeconds.
	LockoutEnabled  *bool `json:"security.lockout.enabled,omitempty"`
	LockoutFailures *int  `json:"security.lockout.maxFailures,omitempty"`
	LockoutWindow   *int  `json:"security.lockout.windowSeconds,omitempty"`
	LockoutSeconds  *int  `json:"security.lockout.lockSeconds,omitempty"`
	// ResetMinutes is the lifetime of a password reset token.
	ResetMinutes *int `json:"security.passwordReset.ttlMinutes,omitempty"`
}

// ConfigVersion is one version of the cluster's settings. It is immutable; the latest hundred are
// kept. The gateway writes it.
type ConfigVersion struct {
	record.Rev
	Version int64 `json:"version"` // from 1
	// Parent is the version it was derived from, 0 for none.
	Parent int64 `json:"parent"`
	// Patch contains all settings of the version, including those of its parent.
	Patch  ClusterSettings `json:"patch"`
	Reason string          `json:"reason,omitempty"`
	By     string          `json:"by"`
	At     time.Time       `json:"at"`
}

// The ways a version becomes active.
const (
	ConfigPatched    = "PATCH"
	ConfigRolledBack = "ROLLBACK"
)

// ConfigActive points to the active version. It does not exist before the first version. The
// gateway writes it.
type ConfigActive struct {
	record.Rev
	// Version is 0 after a rollback to the gateways' own settings.
	Version int64 `json:"version"`
	// Before is the previously active version.
	Before int64 `json:"before"`
	// Patch is the Patch of the active version.
	Patch ClusterSettings `json:"patch"`
	// Action is ConfigPatched or ConfigRolledBack.
	Action string    `json:"action"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

const (
	maxConfigEntries = 100
	// MaxEgressEntries is the maximum length of ClusterSettings.AllowedEgress.
	MaxEgressEntries = 1000
	maxConfigRate    = 1_000_000
	// maxConfigReason bounds the reason given for a version, in bytes.
	maxConfigReason = 256
	maxOrigin       = 256
	// MaxHostName is the maximum length of a host name, in bytes.
	MaxHostName = 253

	maxSessionMinutes = 30 * 24 * 60
	maxResetMinutes   = 24 * 60
	// maxLockoutFailures bounds LockoutFailures, because the time of each failure is stored.
	maxLockoutFailures = 100
	maxLockoutSeconds  = 24 * 60 * 60
)

// configKeys maps each key to a description of its value.
var configKeys = map[string]string{
	"http.cors.allowedOrigins":               "a list of strings",
	"network.allowedSubnets":                 "a list of strings",
	"network.trustedProxies":                 "a list of strings",
	"network.allowedEgress":                  "a list of strings",
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

// ByKey returns the settings that are set as JSON, by key.
func (p ClusterSettings) ByKey() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if b, err := json.Marshal(p); err == nil { // texts and numbers
		_ = json.Unmarshal(b, &out)
	}
	return out
}

// With returns the settings with changes applied. The value null removes a key. Unknown keys and
// unacceptable values are Invalid errors that name the key. Origins and networks are normalized.
func (p ClusterSettings) With(changes map[string]json.RawMessage) (ClusterSettings, []error) {
	var problems []error
	all := p.ByKey()
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		takes, ok := configKeys[key]
		switch {
		case !ok:
			problems = append(problems, errs.Field(validate.Clip(key), "is not a cluster setting; the settings are %s", strings.Join(slices.Sorted(maps.Keys(configKeys)), ", ")))
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
		return p, []error{errs.New(errs.Invalid, "the settings cannot be decoded")}
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

// normalize brings the values into canonical form and returns what is wrong with them.
func (p *ClusterSettings) normalize() []error {
	var out validate.Problems
	list := func(key string, values *[]string, usual func(string) (string, error), most int) {
		if values == nil {
			return
		}
		out.Check(len(*values) <= most, key, "must have at most %d entries", most)
		for n, v := range *values {
			u, err := usual(v)
			if err != nil {
				out.Check(false, fmt.Sprintf("%s[%d]", key, n), "%s", err.Error())
				continue
			}
			(*values)[n] = u
		}
		slices.Sort(*values)
		*values = slices.Compact(*values)
	}
	rate := func(key string, v *int) {
		out.Check(v == nil || *v >= 0 && *v <= maxConfigRate, key, "must be between 0 (no limit) and %d", maxConfigRate)
	}
	between := func(key string, v *int, most int) {
		out.Check(v == nil || *v >= 1 && *v <= most, key, "must be between 1 and %d", most)
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
	return out.List
}

// ValidateReason returns an Invalid error if the reason is too long or has control characters.
func ValidateReason(reason string) error {
	if len(reason) > maxConfigReason || validate.HasControl(reason) {
		return errs.Field("reason", "must be at most %d bytes without control characters", maxConfigReason)
	}
	return nil
}

// usualOrigin returns an origin in the form browsers send: "*", or scheme, host and port in lower
// case. The error text continues a sentence about the value.
func usualOrigin(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	u, err := url.Parse(s)
	if err != nil || len(s) > maxOrigin || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") ||
		u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(s, "?#*, ") {
		return "", fmt.Errorf("%q is not an origin: use a form like https://panel.example.org or http://localhost:3000 without a path, or * for any", validate.Clip(s))
	}
	return strings.ToLower(s), nil
}

// Subnet returns a network in CIDR form. An address becomes a network of one address. The error
// text continues a sentence about the value.
func Subnet(s string) (string, error) {
	p, err := netip.ParsePrefix(s)
	if a, errA := netip.ParseAddr(s); errA == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	const mapped = 96 // bits precede the IPv4 address in an IPv4-mapped IPv6 address
	if err == nil && p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	if err != nil {
		return "", fmt.Errorf("%q is not a network: use a form like 10.0.0.0/8, fd00::/8 or 192.0.2.7", validate.Clip(s))
	}
	return p.Masked().String(), nil
}

// hostPattern matches the host name of a URL.
var hostPattern = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// EgressEntry returns an entry of an egress allow list in canonical form: a network in CIDR form
// or a host name in lower case. The error text continues a sentence about the value.
func EgressEntry(s string) (string, error) {
	if u, err := Subnet(s); err == nil {
		return u, nil
	}
	host := strings.ToLower(strings.TrimSuffix(s, "."))
	if len(host) > MaxHostName || !hostPattern.MatchString(host) {
		return "", fmt.Errorf("%q is neither a host nor a network: use a form like git.example.org, 10.0.0.0/8 or fd00::7, without scheme and port", validate.Clip(s))
	}
	return host, nil
}

// proxySubnet is Subnet, but it rejects the networks that contain every address.
func proxySubnet(s string) (string, error) {
	u, err := Subnet(s)
	if err == nil && strings.HasSuffix(u, "/0") {
		return "", errors.New("would trust every client's X-Forwarded-For header: list only the proxies")
	}
	return u, err
}
