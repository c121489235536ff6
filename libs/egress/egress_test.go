package egress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
)

func TestPrivateAddressesNeedTheAllowList(t *testing.T) {
	for _, c := range []struct {
		address, kind string
	}{
		{"1.1.1.1", ""},
		{"2606:4700::1111", ""},
		{"100.128.0.1", ""},
		{"172.32.0.1", ""},
		{"::ffff:8.8.8.8", ""},
		{"127.0.0.1", "loopback"},
		{"127.8.9.10", "loopback"},
		{"::1", "loopback"},
		{"::ffff:127.0.0.1", "loopback"},
		{"0.0.0.0", "unspecified"},
		{"0.1.2.3", "unspecified"},
		{"::", "unspecified"},
		{"169.254.1.1", "link-local"},
		{"fe80::1", "link-local"},
		{"fe80::1%eth0", "link-local"},
		{"10.0.0.1", "private"},
		{"172.16.0.1", "private"},
		{"172.31.255.255", "private"},
		{"192.168.1.1", "private"},
		{"fd12::1", "private"},
		{"::ffff:10.0.0.1", "private"},
		{"100.64.0.1", "carrier"},
		{"100.127.255.255", "carrier"},
		{"64:ff9b::8.8.8.8", "NAT64"},
		{"64:ff9b::10.0.0.1", "NAT64"},
		{"64:ff9b:1::1", "NAT64"},
		{"64:ff9b:1:ffff::1", "NAT64"},
		{"169.254.169.254", "metadata"},
		{"::ffff:169.254.169.254", "metadata"},
		{"fd00:ec2::254", "metadata"},
		{"100.100.100.200", "metadata"},
		{"168.63.129.16", "metadata"},
		{"::10.0.0.1", "IPv4 address inside"},
		{"2002:a00:1::1", "IPv4 address inside"},
		{"224.0.0.1", "multicast"},
		{"ff02::1", "multicast"},
		{"255.255.255.255", "reserved"},
	} {
		a := netip.MustParseAddr(c.address)
		if got := egress.Kind(a); (got == "") != (c.kind == "") || !strings.Contains(got, c.kind) {
			t.Errorf("%s is %q, want %q", c.address, got, c.kind)
		}
		if got := egress.Parse(nil).Permits("host.example", a); got != (c.kind == "") {
			t.Errorf("%s with an empty list: %v", c.address, got)
		}
		named := []string{a.Unmap().WithZone("").String()}
		if !egress.Parse(named).Permits("host.example", a) && !strings.HasPrefix(c.address, "64:ff9b::10.") {
			t.Errorf("%s is refused though the list names it", c.address)
		}
		if !egress.Parse([]string{"HOST.example."}).Permits("host.EXAMPLE", a) || egress.Parse([]string{"other.example"}).Permits("host.example", a) != (c.kind == "") {
			t.Errorf("%s: the list does not name the host by name", c.address)
		}
	}
	nat64 := netip.MustParseAddr("64:ff9b::10.0.0.1")
	if egress.Parse([]string{"64:ff9b::/96"}).Permits("h", nat64) || egress.Parse([]string{"10.0.0.0/8"}).Permits("h", nat64) {
		t.Error("a private address inside NAT64 is reached by a list that names one of both")
	}
	if !egress.Parse([]string{"64:ff9b::/96", "10.0.0.0/8"}).Permits("h", nat64) || !egress.Parse([]string{"64:ff9b::/96"}).Permits("h", netip.MustParseAddr("64:ff9b::8.8.8.8")) {
		t.Error("the list does not reach through NAT64")
	}
}

// client returns a client whose connections obey a policy.
func client(t *testing.T, p egress.Policy) *http.Client {
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.DialHTTP(ctx, time.Minute, network, address)
	}, Proxy: p.ProxyOf}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func allowing(entries ...string) egress.Policy {
	return egress.Policy{Allowed: func(context.Context) (egress.Allowed, error) { return egress.Parse(entries), nil }}
}

func TestResolvedAddressIsCheckedAfterRedirect(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") }))
	defer inside.Close()
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	byName := "http://localhost:" + port
	refused := func(p egress.Policy, target, want string) {
		t.Helper()
		resp, err := client(t, p).Get(target)
		if err == nil {
			_ = resp.Body.Close()
			t.Fatalf("%s: %s", target, resp.Status)
		}
		if text := errs.MessageOf(err); !errs.Is(err, errs.Denied) || !strings.Contains(text, want) || !strings.Contains(text, egress.Setting) {
			t.Errorf("%s: %v", target, err)
		}
	}
	refused(egress.Policy{}, inside.URL, "127.0.0.1 is a loopback address")
	refused(egress.Policy{}, byName, "(localhost) is a loopback address")
	refused(egress.Policy{}, "http://[::ffff:127.0.0.1]:"+port, "is a loopback address")
	from := httptest.NewServer(http.RedirectHandler(byName, http.StatusFound))
	defer from.Close()
	refused(allowing("192.168.0.0/16"), from.URL, "127.0.0.1 is")
	resp, err := client(t, allowing("localhost")).Get(byName)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	// The first server is allowed by its name, but the redirect target is not.
	_, port, _ = net.SplitHostPort(from.Listener.Addr().String())
	away := httptest.NewServer(http.RedirectHandler("http://127.0.0.2:"+port, http.StatusFound))
	defer away.Close()
	refused(allowing("127.0.0.1"), away.URL, "127.0.0.2 is a loopback address")
}

func TestProxyChecksHosts(t *testing.T) {
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked <- r.URL.String() }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	if resp, err := client(t, egress.Policy{}).Get("http://10.255.255.1/"); err == nil {
		_ = resp.Body.Close()
		t.Error("the proxy of the environment was used")
	}
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	through := client(t, egress.Policy{Proxy: u})
	resp, err := through.Get("http://public.invalid/a")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := <-asked; got != "http://public.invalid/a" {
		t.Errorf("the proxy was asked for %s", got)
	}
	for _, target := range []string{"http://169.254.169.254/latest", "http://localhost/", "http://10.0.0.1/", "http://127.1/", "http://0x7f000001/", "http://2130706433/", "http://169.254.169.254./"} {
		if resp, err := through.Get(target); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s went through the proxy", target)
		} else if !errs.Is(err, errs.Denied) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if len(asked) != 0 {
		t.Errorf("the proxy was asked for %s", <-asked)
	}
}
