package trust_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
	"github.com/orreryhq/orrery/libs/wire"
)

var (
	gateway   = pki.Identity{Service: pki.Gateway}
	scheduler = pki.Identity{Service: pki.Scheduler, Name: "s1"}
	nodeOne   = pki.Identity{Service: pki.Agent, Name: "n1"}
	nodeTwo   = pki.Identity{Service: pki.Agent, Name: "n2"}
)

func open(t *testing.T, path string, log io.Writer) *trust.Peers {
	t.Helper()
	c, err := trust.Open(path, time.Now, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return trust.ByCertificate(c)
}

// serve answers with the path of the caller for the given services until the test ends, and returns the URL.
func serve(t *testing.T, p *trust.Peers, services ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), Handler: p.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok := trust.CallerOf(r.Context())
		if err := trust.Allow(r.Context(), gateway, nodeOne); err != nil {
			wire.Encode(w, wire.Internal, "", err)
			return
		}
		if !ok {
			caller.Service = "anyone"
		}
		_, _ = io.WriteString(w, caller.Path())
	}), services...)}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- wire.Serve(ctx, s, p.Listener(l), time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p.URLOf(l.Addr())
}

// call returns the answer to a call that is meant for a service.
func call(t *testing.T, p *trust.Peers, to pki.Identity, url string) (string, error) {
	t.Helper()
	base := &http.Transport{DisableKeepAlives: true}
	resp, err := wire.Send(t.Context(), &http.Client{Transport: p.Transport(base, to)}, wire.Request{Method: http.MethodGet, URL: url, Token: p.Token()})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestACallNeedsTheRightIdentityOnBothSides(t *testing.T) {
	a, other := trusttest.New(t), trusttest.New(t)
	url := serve(t, a.Peers(nodeOne), pki.Gateway, pki.Agent)
	for _, c := range []struct {
		name   string
		caller *trust.Peers
		to     pki.Identity
		kind   errs.Kind // zero: it works
		says   string
	}{
		{"gateway", a.Peers(gateway), nodeOne, 0, "apigateway"},
		{"any agent is meant", a.Peers(gateway), pki.Identity{Service: pki.Agent}, 0, "apigateway"},
		{"itself", a.Peers(nodeOne), nodeOne, 0, "nodeagent/n1"},
		{"a service that the callee does not serve", a.Peers(scheduler), nodeOne, errs.Denied, "scheduler/s1 may not make this call"},
		{"another node", a.Peers(nodeTwo), nodeOne, errs.Denied, "it is for apigateway, nodeagent/n1"},
		{"another node is meant", a.Peers(gateway), nodeTwo, errs.Unavailable, "nodeagent/n1 answers there, not nodeagent/n2"},
		{"another service is meant", a.Peers(gateway), pki.Identity{Service: pki.Templates}, errs.Unavailable, "not templatesvc"},
		{"another authority", other.Peers(gateway), nodeOne, errs.Unavailable, "does not trust"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := call(t, c.caller, c.to, url)
			switch {
			case c.kind == 0 && (err != nil || got != c.says):
				t.Errorf("%q, %v; want %q", got, err, c.says)
			case c.kind != 0 && (errs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, %v; want %v with %q", errs.KindOf(err), err, c.kind, c.says)
			}
		})
	}
}

func TestACallerWithoutCertificateIsRefused(t *testing.T) {
	a := trusttest.New(t)
	url := serve(t, a.Peers(nodeOne), pki.Gateway)
	if got, err := call(t, trust.BySecret("secret"), nodeOne, url); err == nil {
		t.Errorf("a caller without certificate got %q", got)
	}
	if got, err := call(t, trust.BySecret("secret"), nodeOne, strings.Replace(url, "https", "http", 1)); err == nil {
		t.Errorf("a caller without TLS got %q", got)
	}
}

func TestACertifiedCallerDoesNotCallOverPlainHTTP(t *testing.T) {
	called := false
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true })}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	_, err = call(t, trusttest.New(t).Peers(gateway), nodeOne, "http://"+l.Addr().String())
	_ = s.Close()
	<-done
	if err == nil || !strings.Contains(err.Error(), "not called over plain HTTP") || called {
		t.Errorf("error %v, the server was called: %v", err, called)
	}
}

func TestWithoutCertificatesTheSecretAdmitsEveryCaller(t *testing.T) {
	url := serve(t, trust.BySecret("secret"), pki.Gateway)
	if got, err := call(t, trust.BySecret("secret"), nodeOne, url); err != nil || got != "anyone" {
		t.Errorf("%q, %v", got, err)
	}
	for _, secret := range []string{"other", ""} {
		if _, err := call(t, trust.BySecret(secret), nodeOne, url); !errs.Is(err, errs.Unauthenticated) {
			t.Errorf("secret %q: %v, want Unauthenticated", secret, err)
		}
	}
	if _, err := call(t, trust.BySecret(""), nodeOne, serve(t, trust.BySecret(""))); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("an empty secret admits %v", err)
	}
}

func TestCredentialsFollowTheirFile(t *testing.T) {
	old, fresh := trusttest.New(t), trusttest.New(t)
	path := old.File(nodeOne)
	var log proctest.Buffer
	server := open(t, path, &log)
	url := serve(t, server, pki.Gateway)
	before, after := old.Peers(gateway), fresh.Peers(gateway)
	try := func(step string, p *trust.Peers, works bool) {
		t.Helper()
		if _, err := call(t, p, nodeOne, url); (err == nil) != works {
			t.Errorf("%s: %v, want it to work: %v", step, err, works)
		}
	}
	try("at first", before, true)
	try("at first, the next authority", after, false)
	old.File(nodeOne, fresh) // overlap: it knows both, and presents the old one
	try("overlap", before, true)
	trusttest.Write(t, path, pki.NewBundle(old.Issue(nodeTwo), old.Pair().Cert))
	try("of another node", before, true)
	if !strings.Contains(log.String(), "nodeagent/n2, not of nodeagent/n1") {
		t.Errorf("a bundle of another node is not refused:\n%s", log.String())
	}
	trusttest.Write(t, path, []byte("broken"))
	try("broken", before, true)
	try("broken", before, true)
	if n := strings.Count(log.String(), "not PEM"); n != 1 {
		t.Errorf("the broken file was logged %d times, want once:\n%s", n, log.String())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	try("absent", before, true)
	trusttest.Write(t, path, pki.NewBundle(fresh.Issue(nodeOne), fresh.Pair().Cert))
	try("rotated", after, true)
	try("rotated, the previous authority", before, false)
}

func TestAConnectionEndsWithTheAuthorityOfItsCaller(t *testing.T) {
	old, fresh := trusttest.New(t), trusttest.New(t)
	path := old.File(nodeOne)
	url := serve(t, open(t, path, io.Discard), pki.Gateway)
	kept := &http.Client{Transport: old.Peers(gateway).Transport(&http.Transport{}, nodeOne)}
	defer kept.CloseIdleConnections()
	get := func() error {
		return wire.Call(t.Context(), kept, wire.Request{Method: http.MethodGet, URL: url}, nil)
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	trusttest.Write(t, path, pki.NewBundle(fresh.Issue(nodeOne), fresh.Pair().Cert))
	if err := get(); err == nil {
		t.Error("a caller of the replaced authority is served over its old connection")
	}
}

// A connection that is always in use would otherwise carry requests until its certificate has expired.
func TestACallerUsesNoConnectionOfItsPreviousCertificate(t *testing.T) {
	a := trusttest.New(t)
	path := a.File(gateway)
	server := a.Peers(nodeOne)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	release, serials := make(chan struct{}), make(chan string, 4)
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: server.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		serials <- r.RemoteAddr + " " + r.TLS.PeerCertificates[0].SerialNumber.String()
		if r.URL.Path == "/long" {
			<-release
		}
	}), pki.Gateway)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- wire.Serve(ctx, s, server.Listener(l), time.Second) }()
	kept := &http.Client{Transport: open(t, path, io.Discard).Transport(&http.Transport{}, nodeOne)}
	defer func() {
		kept.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	get := func(path string) error {
		return wire.Call(t.Context(), kept, wire.Request{Method: http.MethodGet, URL: server.URLOf(l.Addr()) + path}, nil)
	}
	if err := get("/"); err != nil {
		t.Fatal(err)
	}
	first := <-serials
	long := make(chan error, 1)
	go func() { long <- get("/long") }()
	if again := <-serials; again != first {
		t.Errorf("with one certificate it had the connections %s and %s", first, again)
	}
	a.File(gateway)
	if err := get("/"); err != nil {
		t.Fatal(err)
	}
	next := <-serials
	if next == first || strings.HasSuffix(next, first[strings.Index(first, " "):]) {
		t.Errorf("a call used the connection of the previous certificate: %s", next)
	}
	close(release)
	if err := <-long; err != nil {
		t.Errorf("a call in progress: %v", err)
	}
	if err := get("/"); err != nil {
		t.Fatal(err)
	}
	if last := <-serials; last != next {
		t.Errorf("it used the connection %s, had %s", last, next)
	}
}

func TestAHandshakeThatIsNotAnsweredEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and stays silent
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	transport := trusttest.New(t).Peers(gateway).Transport(&http.Transport{TLSHandshakeTimeout: time.Millisecond}, nodeOne)
	err = wire.Call(t.Context(), &http.Client{Transport: transport}, wire.Request{Method: http.MethodGet, URL: "https://" + l.Addr().String()}, nil)
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "handshake timeout") {
		t.Errorf("%v, want a timeout of the handshake", err)
	}
}

func TestOpenRefusesFilesThatAreNotUsable(t *testing.T) {
	dir, a := t.TempDir(), trusttest.New(t)
	expired, err := a.Authority.Issue(pki.Request{Name: "x", Identity: nodeOne, Server: true, Client: true, Now: time.Now().Add(-2 * time.Hour), Until: time.Now().Add(-time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	early, err := a.Authority.Issue(pki.Request{Name: "x", Identity: nodeOne, Server: true, Client: true, Now: time.Now().Add(time.Hour), Until: time.Now().Add(2 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, says string }{
		"broken":  {"broken", "not PEM"},
		"expired": {string(pki.NewBundle(expired, a.Pair().Cert)), "expired at"},
		"early":   {string(pki.NewBundle(early, a.Pair().Cert)), "correct the clock"},
	} {
		path := filepath.Join(dir, name)
		trusttest.Write(t, path, []byte(c.text))
		_, err := trust.Open(path, time.Now, slog.New(slog.DiscardHandler))
		if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "trust.file" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want Invalid for trust.file with %q", name, err, c.says)
		}
	}
	if _, err := trust.Open(filepath.Join(dir, "absent"), time.Now, slog.New(slog.DiscardHandler)); !errs.Is(err, errs.Invalid) {
		t.Errorf("absent: %v", err)
	}
}

func TestAProcessThatRenewsItsCertificateStartsWithAnExpiredOne(t *testing.T) {
	a, log := trusttest.New(t), slog.New(slog.DiscardHandler)
	path := a.File(nodeOne)
	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	if _, err := trust.Open(path, later, log); !errs.Is(err, errs.Invalid) {
		t.Errorf("another process: %v", err)
	}
	c, err := trust.OpenRenewed(path, later, log)
	if err != nil || c.Bundle().Identity() != nodeOne {
		t.Errorf("%v", err)
	}
	trusttest.Write(t, path, []byte("broken"))
	if _, err := trust.OpenRenewed(path, later, log); !errs.Is(err, errs.Invalid) {
		t.Errorf("a broken one: %v", err)
	}
}

// text returns a new bundle of a service.
func text(a *trusttest.Authority, who pki.Identity) []byte {
	return pki.NewBundle(a.Issue(who), a.Pair().Cert)
}

func TestReplaceWritesTheFile(t *testing.T) {
	a := trusttest.New(t)
	path := a.File(scheduler)
	c, err := trust.Open(path, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	fresh, before := text(a, scheduler), c.Bundle()
	if err := c.Replace(before, fresh); err != nil {
		t.Fatal(err)
	}
	if stored, err := os.ReadFile(path); err != nil || string(stored) != string(fresh) {
		t.Errorf("the file has another bundle: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the file: %v, %v", info.Mode(), err)
	}
	if !uses(t, c, fresh) {
		t.Error("the new bundle is not in use")
	}
	if err := c.Replace(before, text(a, scheduler)); err != nil || !uses(t, c, fresh) {
		t.Errorf("a bundle was replaced that had changed: %v", err)
	}
	for name, wrong := range map[string][]byte{"of another service": text(a, gateway), "broken": []byte("broken")} {
		if err := c.Replace(c.Bundle(), wrong); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if stored, err := os.ReadFile(path); err != nil || string(stored) != string(fresh) || !uses(t, c, fresh) {
			t.Errorf("%s: the bundle was replaced: %v", name, err)
		}
	}
}

// uses reports whether a bundle is in use.
func uses(t *testing.T, c *trust.Credentials, text []byte) bool {
	t.Helper()
	want, err := pki.ParseBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	return c.Bundle().Certificate().Leaf.Equal(want.Certificate().Leaf)
}

// Replicas may share a file. Each writes a whole bundle, and the others use it.
func TestReplicasThatShareAFileUseTheLastCertificate(t *testing.T) {
	a := trusttest.New(t)
	path := a.File(scheduler)
	var all []*trust.Credentials
	for range 4 {
		c, err := trust.Open(path, time.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	var writing sync.WaitGroup
	for _, c := range all {
		fresh, old := text(a, scheduler), c.Bundle()
		writing.Go(func() {
			if err := c.Replace(old, fresh); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	last, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		if !uses(t, c, last) {
			t.Errorf("replica %d does not use the certificate in the file", i)
		}
	}
}

func TestABundleThatCannotBeStoredIsInUse(t *testing.T) {
	a, dir := trusttest.New(t), filepath.Join(t.TempDir(), "etc")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path, aside := filepath.Join(dir, "trust.pem"), dir+".aside"
	first := text(a, scheduler)
	trusttest.Write(t, path, first)
	var log proctest.Buffer
	c, err := trust.Open(path, time.Now, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	move := func(from, to string) { // nobody can write a directory that is not there, not even root
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(dir, aside)
	fresh := text(a, scheduler)
	if err := c.Replace(c.Bundle(), fresh); err != nil || !uses(t, c, fresh) {
		t.Fatalf("the new bundle is not in use: %v", err)
	}
	if !strings.Contains(log.String(), "let the service write the directory") {
		t.Errorf("the log does not say what to do:\n%s", log.String())
	}
	c.Save()
	move(aside, dir)
	if stored, err := os.ReadFile(path); err != nil || string(stored) != string(first) || !uses(t, c, fresh) {
		t.Errorf("before it can be stored: %v", err)
	}
	c.Save()
	if stored, err := os.ReadFile(path); err != nil || string(stored) != string(fresh) || !uses(t, c, fresh) {
		t.Errorf("it is not stored: %v", err)
	}

	move(dir, aside)
	if err := c.Replace(c.Bundle(), text(a, scheduler)); err != nil {
		t.Fatal(err)
	}
	move(aside, dir)
	operators := text(a, scheduler)
	trusttest.Write(t, path, operators)
	c.Save()
	if stored, err := os.ReadFile(path); err != nil || string(stored) != string(operators) || !uses(t, c, operators) {
		t.Errorf("a file that was replaced by hand does not win: %v", err)
	}
}

func TestAPoolHasOneTransportForEachService(t *testing.T) {
	a := trusttest.New(t)
	url := serve(t, a.Peers(nodeOne), pki.Gateway)
	pool := trust.NewPool(a.Peers(gateway), &http.Transport{})
	defer pool.CloseIdleConnections()
	if pool.To(nodeOne) != pool.To(nodeOne) || pool.To(nodeOne) == pool.To(nodeTwo) {
		t.Error("transports of different services are shared, or one service has two")
	}
	get := func(to pki.Identity) error {
		resp, err := wire.Send(t.Context(), &http.Client{Transport: pool.To(to)}, wire.Request{Method: http.MethodGet, URL: url})
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Body.Close()
	}
	if err := get(nodeOne); err != nil {
		t.Error(err)
	}
	if err := get(nodeTwo); err == nil { // must not use the connection of nodeOne
		t.Error("a call to another node was answered")
	}
	base := &http.Transport{}
	if plain := trust.NewPool(trust.BySecret("s"), base); plain.To(nodeOne) != http.RoundTripper(base) {
		t.Error("without certificates the pool does not share its base")
	}
}

func TestCheckOwnWantsTheServicesOwnCertificate(t *testing.T) {
	p := trusttest.New(t).Peers(nodeOne)
	if err := p.CheckOwn(nodeOne); err != nil {
		t.Error(err)
	}
	for _, other := range []pki.Identity{nodeTwo, gateway} {
		if err := p.CheckOwn(other); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "trust.file" {
			t.Errorf("as %s: %v, want Invalid for trust.file", other.Path(), err)
		}
	}
	if err := trust.BySecret("s").CheckOwn(nodeOne); err != nil {
		t.Error(err)
	}
}

func TestCheckURLWantsHTTPSWithCertificates(t *testing.T) {
	secure, plain := trusttest.New(t).Peers(gateway), trust.BySecret("s")
	for _, c := range []struct {
		p    *trust.Peers
		url  string
		fine bool
	}{
		{secure, "", true},
		{secure, "https://h:1", true},
		{secure, "http://h:1", false},
		{plain, "http://h:1", true},
		{plain, "https://h:1", true},
	} {
		if err := c.p.CheckURL("advertise-url", c.url); (err == nil) != c.fine || err != nil && errs.FieldOf(err) != "advertise-url" {
			t.Errorf("%q: %v", c.url, err)
		}
	}
}
