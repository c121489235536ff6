package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/cluster/proxy"
	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/pki"
)

// taps are on the connections of a cluster.
type taps struct {
	mu    sync.Mutex
	links map[site.Pair]*tap
}

// tap records the bytes of a link, and can connect its clients to an impostor.
type tap struct {
	mu       sync.Mutex
	up, down bytes.Buffer
	open     map[net.Conn]bool
	impostor string
}

func newTaps() *taps { return &taps{links: map[site.Pair]*tap{}} }

func (a *taps) on(p site.Pair) *tap {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.links[p] == nil {
		a.links[p] = &tap{open: map[net.Conn]bool{}}
	}
	return a.links[p]
}

func (a *taps) wrap(p site.Pair, dial proxy.Dial) proxy.Dial {
	l := a.on(p)
	return func(ctx context.Context) (net.Conn, error) {
		l.mu.Lock()
		to := l.impostor
		l.mu.Unlock()
		if to != "" {
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		}
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open[c] = true
		return &tappedConn{c, l}, nil
	}
}

// proxied puts a proxy with a tap before an address, and returns the proxy's address.
func (a *taps) proxied(t *testing.T, p site.Pair, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	between := proxy.New(l, a.wrap(p, func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }))
	t.Cleanup(between.Close)
	return between.Address()
}

// lead connects clients to an address from now on, or to the real target if it is empty. Open connections end.
func (l *tap) lead(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.impostor = address
	for c := range l.open {
		_ = c.Close()
	}
	clear(l.open)
}

type tappedConn struct {
	net.Conn
	link *tap
}

func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.down.Write(b[:n])
	return n, err
}

func (c *tappedConn) Write(b []byte) (int, error) {
	c.link.mu.Lock()
	c.link.up.Write(b)
	c.link.mu.Unlock()
	return c.Conn.Write(b)
}

// holds reports whether a text passed the link in either direction, and how much passed in both.
func (l *tap) holds(text string) (found bool, up, down int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.up.Bytes(), []byte(text)) || bytes.Contains(l.down.Bytes(), []byte(text)), l.up.Len(), l.down.Len()
}

// impostor is a server with a certificate of another authority, for the identity and the address of the real one.
type impostor struct {
	address string
	// refused are the clients that ended the handshake because of the certificate, deceived those that did not.
	refused, deceived atomic.Int32
}

func newImpostor(t *testing.T, other *pki.Authority, who pki.Identity) *impostor {
	t.Helper()
	now := time.Now()
	p, err := other.Issue(pki.Request{Name: "impostor", Identity: who, Hosts: []string{"127.0.0.1"}, Server: true, Client: true, Now: now, Until: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := &impostor{address: l.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				i.serve(t.Context(), tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}))
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return i
}

func (i *impostor) serve(ctx context.Context, c *tls.Conn) {
	ctx, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	switch err := c.HandshakeContext(ctx); {
	case err == nil:
		i.deceived.Add(1)
	case strings.Contains(err.Error(), "remote error: tls: bad certificate"), strings.Contains(err.Error(), "remote error: tls: unknown certificate authority"):
		i.refused.Add(1)
	}
}

// secureAPI calls a gateway over TLS.
type secureAPI struct {
	t     *testing.T
	url   string
	http  *http.Client
	token string
}

func (a *secureAPI) try(method, path string, body any) (status int, answer []byte, err error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(cluster.Bounded(a.t), method, a.url+path, bytes.NewReader(encoded))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

func (a *secureAPI) do(method, path string, body any) []byte {
	a.t.Helper()
	status, answer, err := a.try(method, path, body)
	if err != nil || status/100 != 2 {
		a.t.Fatalf("%s %s: %d %s, %v", method, path, status, answer, err)
	}
	return answer
}

// login logs in as the first user, and returns the password.
func (a *secureAPI) login(c cluster.Cluster) (password string) {
	a.t.Helper()
	text, err := os.ReadFile(c.PasswordFile())
	if err != nil {
		a.t.Fatal(err)
	}
	password = strings.TrimSpace(string(text))
	var answer struct{ Token string }
	if err := json.Unmarshal(a.do("POST", "/api/v1/auth/login", map[string]string{"username": "admin", "password": password}), &answer); err != nil {
		a.t.Fatal(err)
	}
	a.token = answer.Token
	return password
}

// tapped is a cluster with taps on all connections between its processes, and a gateway that serves the API over TLS.
type tapped struct {
	cluster.Local
	*taps
	admin *cluster.Client
	api   *secureAPI
	// links are the tapped connections, with the identities of their servers.
	links map[site.Pair]pki.Identity
}

var (
	apiLink  = site.Pair{From: "clients", To: "secure"}
	peerLink = site.Pair{From: "apigateway-1", To: "secure"}
)

// newTapped returns nil if all services run in one process.
func newTapped(t *testing.T) *tapped {
	t.Helper()
	a := newTaps()
	c := cluster.Start(t, cluster.Options{Wrap: a.wrap})
	if cluster.Service(c, "apigateway-1") == nil {
		return nil
	}
	s := &tapped{Local: c, taps: a, admin: cluster.Login(t, c), links: map[site.Pair]pki.Identity{
		{From: "node-1", To: "apigateway-1"}: {Service: pki.Gateway, Name: "apigateway-1"},
		{From: "node-1", To: "enforcer-1"}:   {Service: pki.Enforcer, Name: "enforcer-1"},
		{From: "gateways", To: "node-1"}:     {Service: pki.Agent, Name: "node-1"},
		{From: "all", To: "templatesvc-1"}:   {Service: pki.Templates, Name: "templatesvc-1"},
		apiLink:                              {},
		peerLink:                             {Service: pki.Gateway, Name: "secure"},
	}}
	for _, service := range []string{"apigateway-1", "scheduler-1", "enforcer-1", "templatesvc-1", "secure"} {
		s.links[site.Pair{From: service, To: "etcd-1"}] = pki.Identity{Service: pki.Etcd}
	}
	etcd := "https://" + a.proxied(t, site.Pair{From: "secure", To: "etcd-1"}, strings.TrimPrefix(c.Etcd(), "https://"))
	authority, dir, peers := newAuthority(t), t.TempDir(), freeAddress(t)
	authority.write(t, dir, "127.0.0.1")
	g := startGatewayWith(t, c, etcd, s.admin, "secure", append(c.Trust(pki.Identity{Service: pki.Gateway, Name: "secure"}),
		"--peers-listen", peers, "--peers-url", "https://"+a.proxied(t, peerLink, peers),
		"--tls-cert", filepath.Join(dir, "tls.crt"), "--tls-key", filepath.Join(dir, "tls.key"))...)
	at := a.proxied(t, apiLink, strings.TrimPrefix(g.url, "https://"))
	s.api = &secureAPI{t: t, url: "https://" + at, http: authority.client(t, "127.0.0.1")}
	return s
}

// askPeer lets the first gateway read the log of the other one.
func (s *tapped) askPeer() { s.admin.Do("GET", "/api/v1/system/logs", nil).OK(200) }

// serve starts a group whose template has a file with a text and a secret.
func (s *tapped) serve(group, text string) cluster.Instance {
	s.publish(group, text)
	s.api.do("POST", "/api/v1/groups", s.group(group))
	return s.admin.AwaitRunning(group, 1)[0]
}

func (s *tapped) publish(template, text string) {
	s.api.do("POST", "/api/v1/templates", map[string]any{"name": template})
	s.api.do("PUT", "/api/v1/templates/"+template+"/files/content?path=values.properties", map[string]any{"content": text + " %DB%"})
	s.api.do("PUT", "/api/v1/templates/"+template+"/variables", []map[string]any{{"key": "DB", "type": "SECRET"}})
}

func (s *tapped) group(name string) map[string]any {
	return catGroup(name, map[string]any{
		"fileModifications": []string{"values.properties"}, "minInstances": 1, "templates": []string{name}, "variableValues": map[string]string{"DB": "secret:db"},
	})
}

func TestASnifferOnAnyLinkSeesNoSecret(t *testing.T) {
	t.Parallel()
	s := newTapped(t)
	if s == nil {
		return // there is no network between the services
	}
	secret, content, line := "secret-"+rand.Text(), "content-"+rand.Text(), "line-"+rand.Text()
	password := s.api.login(s)
	s.api.do("PUT", "/api/v1/secrets/db", map[string]any{"value": secret})
	i := s.serve("vault", content)
	values, err := os.ReadFile(fmt.Sprintf("/proc/%d/cwd/values.properties", i.PID))
	if err != nil || string(values) != content+" "+secret {
		t.Fatalf("the instance has %q, %v", values, err)
	}
	s.api.do("POST", "/api/v1/services/vault-1/command", map[string]string{"command": line})
	await.That(t, "the line on the console", func() string {
		history := string(s.api.do("GET", "/api/v1/services/vault-1/console/history", nil))
		return await.Unless(strings.Contains(history, line), "%s", history)
	})
	s.askPeer()
	for link := range s.links {
		for what, text := range map[string]string{"secret": secret, "template": content, "line of the console": line, "password": password, "token": s.api.token} {
			found, up, down := s.on(link).holds(text)
			if found {
				t.Errorf("the %s can be read between %s and %s", what, link.From, link.To)
			}
			if up == 0 || down == 0 {
				t.Errorf("nothing was recorded between %s and %s: %d bytes there, %d back", link.From, link.To, up, down)
			}
		}
	}

	// The recorder finds them where nothing is encrypted.
	open := site.Pair{From: "clients", To: "apigateway-1"}
	at := s.proxied(t, open, strings.TrimPrefix(s.API(), "http://"))
	plain := &secureAPI{t: t, url: "http://" + at, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	plain.login(s)
	plain.do("GET", "/api/v1/groups", nil) // the answer to the login is compressed
	for what, text := range map[string]string{"password": password, "token": plain.token} {
		if found, _, _ := s.on(open).holds(text); !found {
			t.Errorf("the recorder does not see the %s of a login without TLS", what)
		}
	}
}

func TestAManInTheMiddleIsRefusedOnEveryLink(t *testing.T) {
	t.Parallel()
	s := newTapped(t)
	if s == nil {
		return // there is no network between the services
	}
	s.api.login(s)
	s.api.do("PUT", "/api/v1/secrets/db", map[string]any{"value": "value"})
	s.serve("vault", "first")
	s.publish("later", "second")
	now := time.Now()
	other, err := pki.NewAuthority("another", now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	command := func() {
		status, answer, err := s.api.try("POST", "/api/v1/services/vault-1/command", map[string]string{"command": "hello"})
		if err == nil && status/100 == 2 {
			t.Errorf("a command reaches an impostor: %s", answer)
		}
	}
	made := false
	// provoke makes a client of the link connect. Clients of etcd and of gateways reconnect by themselves.
	provoke := map[site.Pair]func(){
		{From: "gateways", To: "node-1"}: command,
		peerLink:                         s.askPeer,
		{From: "all", To: "templatesvc-1"}: func() {
			if !made { // its agent fetches the template
				s.admin.Do("POST", "/api/v1/groups", s.group("later")).OK(201)
				made = true
			}
		},
		apiLink: func() {
			var unknown *tls.CertificateVerificationError
			if _, _, err := s.api.try("GET", "/api/v1/groups", nil); !errors.As(err, &unknown) {
				t.Errorf("a client of the API: %v", err)
			}
		},
	}
	for link, who := range s.links {
		i := newImpostor(t, other, who)
		s.on(link).lead(i.address)
		await.That(t, fmt.Sprintf("the refusal of an impostor between %s and %s", link.From, link.To), func() string {
			if act := provoke[link]; act != nil {
				act()
			}
			return await.Unless(i.refused.Load() > 0, "%d refused it", i.refused.Load())
		})
		s.on(link).lead("")
		if n := i.deceived.Load(); n > 0 {
			t.Errorf("between %s and %s, %d connections accept a certificate of another authority", link.From, link.To, n)
		}
	}
	s.admin.AwaitRunning("later", 1) // the agent has fetched its template since
	await.That(t, "a command after the impostor is gone", func() string {
		status, answer, err := s.api.try("POST", "/api/v1/services/vault-1/command", map[string]string{"command": "hello"})
		return await.Unless(err == nil && status == http.StatusOK, "%d %s, %v", status, answer, err)
	})
}
