package settings_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

func prefixes(t *testing.T, cidrs ...string) []netip.Prefix {
	t.Helper()
	out, err := settings.Prefixes("x", cidrs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheLastAddressThatIsNoTrustedProxysIsTheClients(t *testing.T) {
	trusting := settings.Settings{Proxies: prefixes(t, "127.0.0.1", "10.0.0.0/8", "fd00::/8")}
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"nobody is trusted who is not named", "192.0.2.1", []string{"203.0.113.9"}, "192.0.2.1"},
		{"a proxy's word is taken", "127.0.0.1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"what the client made up is not", "127.0.0.1", []string{"127.0.0.1, 198.51.100.1, 203.0.113.9"}, "203.0.113.9"},
		{"a chain of proxies is followed", "127.0.0.1", []string{"198.51.100.1, 203.0.113.9, 10.1.1.1"}, "203.0.113.9"},
		{"over several headers", "127.0.0.1", []string{"203.0.113.9", "10.1.1.1"}, "203.0.113.9"},
		{"of proxies alone the first is it", "127.0.0.1", []string{"10.2.2.2, 10.1.1.1"}, "10.2.2.2"},
		{"without a header the proxy is it", "127.0.0.1", nil, "127.0.0.1"},
		{"what is no address ends it", "127.0.0.1", []string{"203.0.113.9, unknown"}, "127.0.0.1"},
		{"and so does it behind a proxy", "127.0.0.1", []string{"unknown, 10.1.1.1"}, "10.1.1.1"},
		{"a port is left out", "127.0.0.1", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{"also of IPv6", "fd00::1", []string{"[2001:db8::7]:4711"}, "2001:db8::7"},
		{"brackets are left out", "fd00::1", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"IPv4 in IPv6 is IPv4", "127.0.0.1", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
	} {
		if got := trusting.Client(netip.MustParseAddr(c.peer), c.forwarded).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := (settings.Settings{}).Client(netip.MustParseAddr("127.0.0.1"), []string{"203.0.113.9"}); got.String() != "127.0.0.1" {
		t.Errorf("a proxy is trusted by default: %s", got)
	}
}

func TestWhoIsInNoneOfTheSubnetsIsNotAdmitted(t *testing.T) {
	s := settings.Settings{Subnets: prefixes(t, "10.0.0.0/8", "2001:db8::/32")}
	for address, want := range map[string]bool{
		"10.1.2.3": true, "11.0.0.1": false, "2001:db8::1": true, "2001:db9::1": false, "127.0.0.9": true, "::1": true,
	} {
		if s.Admits(netip.MustParseAddr(address)) != want {
			t.Errorf("%s: want %v", address, want)
		}
	}
	if s.Admits(netip.Addr{}) || !(settings.Settings{}).Admits(netip.Addr{}) {
		t.Error("who has no address is in no subnet, and admitted where there are none")
	}
	none := settings.Settings{}.With(cluster.ClusterSettings{AllowedSubnets: &[]string{"damaged"}})
	if none.Admits(netip.MustParseAddr("10.1.2.3")) {
		t.Error("a list that cannot be read allows all")
	}
}

func TestAVersionTakesTheOwnSettingsPlaceKeyByKey(t *testing.T) {
	own := settings.Settings{Origins: []string{"*"}, Proxies: prefixes(t, "10.0.0.1"), Anonymous: 100, Logins: 10, Session: time.Hour, Reset: time.Minute, Lockout: settings.Lockout{Failures: 5, Window: time.Minute, Duration: time.Second}}
	zero, off := 0, false
	got := settings.New(own).Under(cluster.ClusterSettings{AllowedOrigins: &[]string{}, LoginsPerMinute: &zero, LockoutEnabled: &off, LockoutWindow: new(90)}).Patch().ByKey()
	want := map[string]string{
		"http.cors.allowedOrigins": `[]`, "network.allowedSubnets": `[]`, "network.trustedProxies": `["10.0.0.1/32"]`, "network.allowedEgress": `[]`,
		"security.rateLimiting.perIpPerMinute": `100`, "security.rateLimiting.loginsPerMinute": `0`,
		"security.rateLimiting.perUserPerMinute": `0`, "security.jwtExpirationMinutes": `60`, "security.passwordReset.ttlMinutes": `1`,
		"security.lockout.enabled": `false`, "security.lockout.maxFailures": `5`, "security.lockout.windowSeconds": `90`, "security.lockout.lockSeconds": `1`,
	}
	texts := map[string]string{}
	for k, v := range got {
		texts[k] = string(v)
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
	if _, err := settings.Prefixes("network.allowed-subnets", []string{"x"}); errs.FieldOf(err) != "network.allowed-subnets" {
		t.Errorf("err = %v", err)
	}
}
