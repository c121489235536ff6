package apigateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

// keyPair is a certificate for games.example and 127.0.0.1 in files, and a client that trusts its authority.
type keyPair struct {
	cert, key string
	roots     *x509.CertPool
}

func newKeyPair(t testing.TB) keyPair {
	t.Helper()
	now := time.Now()
	authority, err := pki.NewAuthority("test", now, now.AddDate(0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	p, err := authority.Issue(pki.Request{Name: "games", Hosts: []string{"games.example", "127.0.0.1"}, Server: true, Now: now, Until: now.AddDate(0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	k := keyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	for path, content := range map[string][]byte{k.cert: p.Cert, k.key: p.Key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k.roots.AppendCertsFromPEM(authority.Pair().Cert)
	return k
}

// serve makes a gateway serve the certificate.
func (k keyPair) serve(c *Config) { c.TLS.Cert, c.TLS.Key = k.cert, k.key }

// client returns an HTTP client that trusts the authority; with HTTP/2 if h2.
func (k keyPair) client(t testing.TB, h2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: k.roots}, ForceAttemptHTTP2: h2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestTheAPIIsServedOverTLS(t *testing.T) {
	t.Parallel()
	k := newKeyPair(t)
	s := newSite(t, k.serve, func(c *Config) { c.TLS.HSTS = 365 * 24 * time.Hour })
	if s.url[:8] != "https://" {
		t.Fatal(s.url)
	}
	for protocol, client := range map[string]*http.Client{"HTTP/1.1": k.client(t, false), "HTTP/2.0": k.client(t, true)} {
		r, err := client.Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != 200 || r.Proto != protocol || r.Header.Get("Strict-Transport-Security") != "max-age=31536000" {
			t.Errorf("%s, want %s: %d %v", r.Proto, protocol, r.StatusCode, r.Header)
		}
	}
	s.do("GET", "/api/v1/overview", nil).want(200).is("insecureHttp", false)
	s.do("GET", "/api/v1/cluster/members", nil).want(200).is("members.0.url", s.url)
	r, err := http.Get("http" + strings.TrimPrefix(s.url, "https") + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != 400 {
		t.Errorf("without TLS: %d", r.StatusCode)
	}
	text := s.do("GET", "/api/metrics", nil).want(200).raw
	if !strings.Contains(text, `orrery_apigateway_tls_certificate_expiry_timestamp_seconds{host="games.example"}`) {
		t.Error("the metrics lack the certificate's expiry")
	}
}

func TestNoHeaderForBrowsersWithoutTLSOrWithAnAgeOf0(t *testing.T) {
	t.Parallel()
	k := newKeyPair(t)
	etcd := storetest.Start(t)
	for _, s := range []*site{newSiteOn(t, etcd, k.serve), newSiteOn(t, etcd, func(c *Config) { c.TLS.HSTS = time.Hour })} {
		if got := s.do("GET", "/readyz", nil).want(200).header.Get("Strict-Transport-Security"); got != "" {
			t.Errorf("%s: %q", s.url, got)
		}
	}
}

// ticketFor returns a stream ticket.
func ticketFor(s *site) string {
	s.t.Helper()
	ticket, _ := s.do("POST", "/api/v1/events/ticket", nil).want(200).field("ticket").(string)
	return ticket
}

func TestStreamsWorkOverTLS(t *testing.T) {
	t.Parallel()
	k := newKeyPair(t)
	s := newSite(t, k.serve)
	for group, h2 := range map[string]bool{"first": false, "second": true} {
		r, err := k.client(t, h2).Get(s.url + "/api/v1/events/stream?ticket=" + ticketFor(s))
		if err != nil {
			t.Fatal(err)
		}
		s.group(group, nil)
		var seen []byte
		for !strings.Contains(string(seen), group) {
			b := make([]byte, 4096)
			n, err := r.Body.Read(b)
			if seen = append(seen, b[:n]...); err != nil {
				t.Fatalf("%s: %v, %s", r.Proto, err, seen)
			}
		}
		_ = r.Body.Close()
	}
	ws, _, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(s.url, "https")+"/api/console", &websocket.DialOptions{HTTPClient: k.client(t, true), HTTPHeader: http.Header{"Authorization": {"Bearer " + s.token}}}) //nolint:bodyclose // of an upgrade there is none
	if err != nil {
		t.Fatal(err)
	}
	s.says(ws, "hlep", "did you mean help?")
	_ = ws.CloseNow()
}

func TestRequestsUnderWayAreAnsweredOverTLSWhenTheGatewayEnds(t *testing.T) {
	t.Parallel()
	k := newKeyPair(t)
	for _, h2 := range []bool{false, true} {
		s := newSite(t, k.serve)
		reader, writer := io.Pipe()
		request, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/api/v1/groups", reader)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+s.token)
		request.Header.Set("Content-Type", "application/json")
		status := make(chan int, 1)
		client := k.client(t, h2)
		go func() {
			r, err := client.Do(request)
			if err != nil {
				t.Error(err)
				status <- 0
				return
			}
			_ = r.Body.Close()
			status <- r.StatusCode
		}()
		if _, err := io.WriteString(writer, `{"name":`); err != nil { // the pipe has no buffer, so the client sends
			t.Fatal(err)
		}
		s.do("GET", "/readyz", nil).want(200) // connections are accepted in order
		s.stop()
		refused(t, strings.TrimPrefix(s.url, "https://"))
		if _, err := io.WriteString(writer, `1}`); err != nil {
			t.Fatal(err)
		}
		_ = writer.Close()
		if got := <-status; got != 400 { // the gateway read that the name is no text
			t.Errorf("HTTP/2 %v: answered with %d", h2, got)
		}
	}
}

func TestBodiesThatAreTooLargeAreRefusedOverTLS(t *testing.T) {
	t.Parallel()
	k := newKeyPair(t)
	s := newSite(t, k.serve)
	for _, h2 := range []bool{false, true} {
		client := k.client(t, h2)
		for _, known := range []bool{false, true} {
			var body io.Reader = strings.NewReader(strings.Repeat(" ", 2*int(wire.BodyLimit)))
			if !known {
				body = io.MultiReader(body)
			}
			request, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/api/v1/groups", body)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+s.token)
			request.Header.Set("Content-Type", "application/json")
			r, err := client.Do(request)
			if err != nil {
				t.Fatalf("HTTP/2 %v, length known %v: %v", h2, known, err)
			}
			_ = r.Body.Close()
			if r.StatusCode != 413 {
				t.Errorf("HTTP/2 %v, length known %v: %d", h2, known, r.StatusCode)
			}
		}
		if r, err := client.Get(s.url + "/readyz"); err != nil {
			t.Errorf("HTTP/2 %v, the next request: %v", h2, err)
		} else {
			_ = r.Body.Close()
		}
	}
}

// The certificates of the gateways are of authorities that the other does not know.
func TestGatewaysCallEachOtherOverTLS(t *testing.T) {
	t.Parallel()
	a := newSite(t, newKeyPair(t).serve)
	b := newSiteOn(t, a.etcd, newKeyPair(t).serve)
	await.That(t, "both gateways are known", func() string {
		return await.Unless(len(a.view.Snapshot().ServiceSessions(serviceName)) == 2, "not yet")
	})
	a.do("POST", "/api/commands/execute", `{"command":"cluster shutdown confirm"}`).want(200).is("success", true).naming("gateway " + b.gateway.cfg.Replica + " ends")
	refused(t, strings.TrimPrefix(b.url, "https://"))
}

func TestListenersBeyondTheHostNeedASetting(t *testing.T) {
	t.Parallel()
	k := newKeyPair(t)
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8080} }
	for name, c := range map[string]struct {
		edit    func(*Transport)
		at      net.Addr
		refused bool
	}{
		"loopback":                     {nil, tcp("127.0.0.1"), false},
		"another loopback":             {nil, tcp("127.8.0.1"), false},
		"loopback of IPv6":             {nil, tcp("::1"), false},
		"a socket":                     {nil, &net.UnixAddr{Name: "x"}, false},
		"all addresses":                {nil, tcp("::"), true},
		"all addresses of IPv4":        {nil, tcp("0.0.0.0"), true},
		"no address":                   {nil, &net.TCPAddr{Port: 8080}, true},
		"an address of the network":    {nil, tcp("10.0.0.1"), true},
		"all addresses, with TLS":      {func(t *Transport) { t.TLS.Cert, t.TLS.Key = k.cert, k.key }, tcp("::"), false},
		"all addresses, with a proxy":  {func(t *Transport) { t.BehindProxy = []string{"10.0.0.9"} }, tcp("::"), false},
		"all addresses, with the risk": {func(t *Transport) { t.InsecureHTTP = true }, tcp("::"), false},
	} {
		var tr Transport
		if c.edit != nil {
			c.edit(&tr)
		}
		err := tr.Check(c.at)
		if errs.Is(err, errs.Invalid) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		for _, setting := range []string{"tls.cert", "tls.key", "tls.acme.hosts", "behind-proxy", "insecure-http", "127.0.0.1"} {
			if c.refused && !strings.Contains(errs.MessageOf(err), setting) {
				t.Errorf("%s: %v does not name %s", name, err, setting)
			}
		}
	}
}

func TestAGatewayDoesNotServeBeyondTheHostWithoutTLS(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := s.gateway.cfg
	cfg.View, cfg.Metrics, cfg.Listen, cfg.Listener = newUnstartedView(s), nil, "", l
	if _, err := New(cfg); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "listen" {
		t.Errorf("a given listener: %v", err)
	}
	cfg.View, cfg.Metrics, cfg.Listen, cfg.Listener = newUnstartedView(s), nil, ":0", nil
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(t.Context()); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "listen" {
		t.Errorf("an own listener: %v", err)
	}
}

func TestTheRiskOfHTTPIsShown(t *testing.T) {
	t.Parallel()
	records := telemetry.NewRing("test", 0)
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s := newSiteOn(t, storetest.Start(t), func(c *Config) {
		c.Listen, c.Listener, c.InsecureHTTP = "", l, true
		c.Log, c.Records = slog.New(records.Handler(slog.NewTextHandler(io.Discard, nil))), records
	})
	s.token = s.login("admin", adminPassword)
	s.do("GET", "/api/v1/overview", nil).want(200).is("insecureHttp", true)
	if got := fmt.Sprint(records.Last(telemetry.RecordFilter{Level: "WARN"}, 10)); !strings.Contains(got, "insecure-http permits") {
		t.Errorf("the warnings of the start: %s", got)
	}
}

func TestOnlyATrustedProxySaysThatTheClientUsedTLS(t *testing.T) {
	t.Parallel()
	for trusted, scheme := range map[string]string{"127.0.0.1": "https://", "10.0.0.9": "http://"} {
		s := newSite(t, func(c *Config) { c.BehindProxy = []string{trusted} })
		r := s.do("POST", "/api/v1/crashes/"+s.leaking(1)+"/share", nil, "X-Forwarded-Proto", "http, https").want(201)
		if link := fmt.Sprint(r.field("url")); !strings.HasPrefix(link, scheme) {
			t.Errorf("a proxy at 127.0.0.1 while %s is trusted: the link is %s", trusted, link)
		}
	}
}
