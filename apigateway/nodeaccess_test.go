package apigateway

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
)

// domain is a gateway that serves nodes and renews the certificates of services, with the authorities of them.
type domain struct {
	*site
	services *trusttest.Authority
	nodes    *pki.Authority
	// forNodes is the URL of the gateway for nodes, forPeers that for gateways and services.
	forNodes, forPeers string
}

func newDomain(t *testing.T, edit ...func(*Config)) *domain {
	t.Helper()
	d := &domain{services: trusttest.New(t)}
	var err error
	if d.nodes, err = pki.NewNodeAuthority("nodes", time.Now().Add(-60*24*time.Hour), time.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, p pki.Pair) string {
		path := filepath.Join(dir, name)
		trusttest.Write(t, path, slices.Concat(p.Cert, p.Key))
		return path
	}
	forNodes, forServices, own := write("nodes.pem", d.nodes.Pair()), write("authority.pem", d.services.Pair()), filepath.Join(dir, "trust.pem")
	trusttest.Write(t, own, d.bundle(d.services.Issue(pki.Identity{Service: pki.Gateway})))
	credentials, err := trust.Open(own, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d.site = newSite(t, append([]func(*Config){func(c *Config) {
		c.Peers, c.PeerListen = trust.ByCertificate(credentials), "127.0.0.1:0"
		c.Nodes, c.Services = Nodes{Listen: "127.0.0.1:0", Authority: forNodes}, Services{Authority: forServices}
	}}, edit...)...)
	d.forNodes = d.gateway.nodesURLs()[0]
	d.forPeers = d.session().PeerURL
	return d
}

// session returns the gateway's record in etcd.
func (d *domain) session() cluster.Session {
	d.t.Helper()
	all, err := store.Get(d.t.Context(), d.store, keys.Session(serviceName, d.gateway.cfg.Replica))
	if err != nil {
		d.t.Fatal(err)
	}
	return all
}

// bundle returns the text of a bundle that trusts both authorities.
func (d *domain) bundle(p pki.Pair) []byte {
	return pki.NewBundle(p, d.services.Pair().Cert, d.nodes.Pair().Cert)
}

// invite creates a join token for a node.
func (d *domain) invite(body string) enroll.Token {
	d.t.Helper()
	made := d.do("POST", "/api/v1/admin/tokens", body).want(201).is("warning", nil)
	text, _ := made.field("token").(string)
	token, err := enroll.ParseToken(text)
	if err != nil {
		d.t.Fatal(err)
	}
	return token
}

// agent returns a client of the agent with a bundle, and its bundle.
func (d *domain) agent(text []byte) (*enroll.Client, *trust.Credentials) {
	d.t.Helper()
	return d.client(d.forNodes, text)
}

// client returns a client of the service with a bundle, and its bundle.
func (d *domain) client(url string, text []byte) (*enroll.Client, *trust.Credentials) {
	d.t.Helper()
	path := filepath.Join(d.t.TempDir(), "trust.pem")
	trusttest.Write(d.t, path, text)
	c, err := trust.OpenRenewed(path, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		d.t.Fatal(err)
	}
	transport := trust.ByCertificate(c).Transport(&http.Transport{DisableKeepAlives: true}, pki.Identity{Service: pki.Gateway})
	return enroll.NewClient(func() []string { return []string{url} }, transport), c
}

// join joins as a host with a new key.
// join joins a node. It waits until the gateway knows which nodes are revoked.
func join(t *testing.T, token enroll.Token) (answer enroll.JoinAnswer, bundle []byte, err error) {
	t.Helper()
	request, err := pki.NewSigningRequest()
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "an answer of the gateway", func() string {
		answer, bundle, err = enroll.Join(t.Context(), token, request, time.Now)
		return await.Unless(!strings.Contains(errs.MessageOf(err), "not known yet which nodes"), "%v", err)
	})
	return answer, bundle, err
}

func TestAHostThatLostTheAnswerJoinsAgainWithItsKey(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	token := d.invite(`{"nodeId":"node-1"}`)
	request, err := pki.NewSigningRequest()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := enroll.Join(t.Context(), token, request, time.Now); err != nil {
			t.Error(err)
		}
		if request, err = pki.SigningRequestFor(request.Key); err != nil { // as the next run of the program makes it
			t.Fatal(err)
		}
	}
	if _, _, err := join(t, token); err == nil || !strings.Contains(err.Error(), "was used at") {
		t.Errorf("another host: %v", err)
	}
}

func TestAHostJoinsWithAToken(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	token := d.invite(`{"nodeId":"node-1","ttl":"15m"}`)
	got, text, err := join(t, token)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Gateways, []string{d.forNodes}) || got.APIURL != d.url {
		t.Errorf("gateways %v, API %s", got.Gateways, got.APIURL)
	}
	b, err := pki.ParseBundle(text)
	if err != nil || b.Identity() != (pki.Identity{Service: pki.Agent, Name: "node-1"}) || b.VerifyOwn(time.Now()) != nil {
		t.Fatalf("%v, %v", b, err)
	}
	if left := time.Until(b.NotAfter()); left > enroll.Life || left < enroll.Life-time.Minute {
		t.Errorf("the certificate is valid for %v", left)
	}
	if slices.Contains(b.Names(), "test authority") == false || len(b.Names()) != 2 {
		t.Errorf("it trusts %v", b.Names())
	}
	c, err := store.Dial([]string{d.forNodes}, store.Options{TLS: d.tlsOf(text)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Join(t.Context(), time.Now()); err != nil {
		t.Errorf("it cannot use etcd: %v", err)
	}
	d.do("GET", "/api/v1/admin/tokens", nil).want(200).is("data.0.status", "USED").is("data.0.usedBy", "127.0.0.1")
	d.do("GET", "/api/v1/audit?action=join-token.use", nil).want(200).is("data.0.username", "node node-1")
}

// tlsOf returns how the agent with a bundle connects to the gateway.
func (d *domain) tlsOf(text []byte) *tls.Config {
	_, c := d.agent(text)
	return trust.ByCertificate(c).ClientTLS(pki.Identity{Service: pki.Gateway})
}

func TestTokensThatAdmitNobodySayWhy(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	used := d.invite(`{"nodeId":"used"}`)
	if _, _, err := join(t, used); err != nil {
		t.Fatal(err)
	}
	altered, other, deleted, barred := d.invite(`{"nodeId":"altered"}`), d.invite(`{"nodeId":"other"}`), d.invite(`{"nodeId":"deleted"}`), d.invite(`{"nodeId":"barred"}`)
	altered.Secret += "x"
	other.Node = "used"
	foreign := d.invite(`{"nodeId":"foreign"}`)
	foreign.Authority = strings.Repeat("0", 64)
	list := d.do("GET", "/api/v1/admin/tokens", nil).want(200)
	for _, row := range list.field("data").([]any) {
		if row := row.(map[string]any); row["nodeId"] == "deleted" {
			d.do("DELETE", "/api/v1/admin/tokens/"+row["tokenId"].(string), nil).want(204)
		}
	}
	expired := enroll.Token{Secret: "pxr_expired", Node: "expired", Authority: altered.Authority, Gateways: altered.Gateways}
	sum := sha256.Sum256([]byte(expired.Secret))
	d.commit(store.Create(keys.JoinToken("expired"), cluster.JoinToken{
		ID: "e", Node: "expired", Hash: hex.EncodeToString(sum[:]), ExpiresAt: time.Now().Add(-time.Hour),
	}), store.Create(keys.RevokedNode("barred"), cluster.RevokedNode{Node: "barred", Until: time.Now().Add(time.Hour)}))
	await.That(t, "the revocation to be known", func() string {
		_, _, err := join(t, barred)
		return await.Unless(errs.Is(err, errs.Denied), "%v", err)
	})
	for name, c := range map[string]struct {
		token enroll.Token
		says  string
	}{
		"used by another host": {used, "was used at"},
		"altered":              {altered, "not the current join token of node altered"},
		"for another node":     {other, "not the current join token of node used"},
		"expired":              {expired, "expired at"},
		"deleted":              {deleted, "there is no join token for node deleted"},
		"of another cluster":   {foreign, "not a gateway of this cluster"},
		"of a revoked node":    {barred, "node barred is revoked"},
	} {
		if _, _, err := join(t, c.token); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	d.do("POST", "/api/v1/admin/tokens", `{"nodeId":"used","again":true}`).want(201)
}

func TestACertificateIsRenewedAfterItsEndButNotForever(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	issue := func(node string, end time.Duration) []byte {
		t.Helper()
		who, now := pki.Identity{Service: pki.Agent, Name: node}, time.Now()
		p, err := d.nodes.Issue(pki.Request{Name: node, Identity: who, Server: true, Client: true, Now: now.Add(end - 24*time.Hour), Until: now.Add(end)})
		if err != nil {
			t.Fatal(err)
		}
		return d.bundle(p)
	}
	d.commit(store.Create(keys.RevokedNode("barred"), cluster.RevokedNode{Node: "barred", Until: time.Now().Add(time.Hour)}))
	await.That(t, "the revocation to be known", func() string {
		_, _, err := join(t, enroll.Token{Secret: "x", Node: "barred", Authority: d.gateway.cfg.Peers.Bundle().Issuer(), Gateways: []string{d.forNodes}})
		return await.Unless(errs.Is(err, errs.Denied), "%v", err)
	})
	for _, c := range []struct {
		node string
		end  time.Duration
		says string
	}{
		{"due", time.Hour, ""},
		{"off-for-days", -29 * 24 * time.Hour, ""},
		{"off-for-long", -31 * 24 * time.Hour, "expired at"},
		{"barred", time.Hour, "is revoked"},
	} {
		client, credentials := d.agent(issue(c.node, c.end))
		before := credentials.Bundle().NotAfter()
		r := enroll.Renewal{Ask: client.Renew, Credentials: credentials, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
		err := r.Renew(t.Context())
		after := credentials.Bundle()
		switch {
		case c.says == "" && (err != nil || !after.NotAfter().After(before) || after.VerifyOwn(time.Now()) != nil || after.Identity().Name != c.node):
			t.Errorf("%s: %v, valid until %v", c.node, err, after.NotAfter())
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !after.NotAfter().Equal(before)):
			t.Errorf("%s: %v, want %q", c.node, err, c.says)
		}
	}
	service, credentials := d.agent(d.bundle(d.services.Issue(pki.Identity{Service: pki.Scheduler})))
	if err := (enroll.Renewal{Ask: service.Renew, Credentials: credentials}).Renew(t.Context()); !errs.Is(err, errs.Denied) {
		t.Errorf("a scheduler gets a certificate of the authority of nodes: %v", err)
	}
}

// An agent whose host was off has connections with its old certificate, because they carry its first calls.
func TestAnAgentWithAnExpiredCertificateReturnsWithTheNextOne(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	who, now := pki.Identity{Service: pki.Agent, Name: "node-1"}, time.Now()
	p, err := d.nodes.Issue(pki.Request{Name: "node-1", Identity: who, Server: true, Client: true, Now: now.Add(-48 * time.Hour), Until: now.Add(-24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	client, credentials := d.agent(d.bundle(p))
	c, err := store.Dial([]string{d.forNodes}, store.Options{TLS: trust.ByCertificate(credentials).ClientTLS(pki.Identity{Service: pki.Gateway})})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Join(t.Context(), time.Now()); err == nil {
		t.Fatal("the expired certificate is good for etcd")
	}
	r := enroll.Renewal{Ask: client.Renew, Credentials: credentials, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	if err := r.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.That(t, "etcd over a connection with the new certificate", func() string {
		_, err := c.Join(t.Context(), time.Now())
		return await.Unless(err == nil, "%v", err)
	})
}

func TestAWrongClockDoesNotRenewInALoop(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	_, text, err := join(t, d.invite(`{"nodeId":"node-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	client, credentials := d.agent(text)
	var log proctest.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	r := enroll.Renewal{
		Ask: client.Renew, Credentials: credentials, Now: func() time.Time { return time.Now().Add(20 * time.Hour) },
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	go func() { done <- r.Run(ctx) }()
	await.That(t, "the second attempt", func() string {
		return await.Unless(strings.Count(log.String(), "correct the clock") >= 2, "%s", log.String())
	})
	cancel()
	<-done
}

func TestANodeGetsTheSecretsOfItsInstancesOnly(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	d.do("PUT", "/api/v1/secrets/db", `{"values":{"password":"recognisable"}}`).want(201)
	d.do("PUT", "/api/v1/secrets/other", `{"values":{"password":"not for it"}}`).want(201)
	plan := fleet.Plan{Group: "lobby", Secrets: map[string]string{"DB": "secret:db#password", "GIVEN": "secret:db#password", "FILE": "file:db"}}
	given := "secret:db#absent"
	d.commit(store.Create(keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan}),
		store.Create(keys.Placement("node-1", "abcdef"), fleet.Placement{Instance: "abcdef", Group: "lobby", Node: "node-1", Plan: plan.Digest(), Values: map[string]string{"GIVEN": given}}))
	host := func(node string) *enroll.Client {
		t.Helper()
		_, text, err := join(t, d.invite(`{"nodeId":"`+node+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		c, _ := d.agent(text)
		return c
	}
	one, two := host("node-1"), host("node-2")
	ask := func(c *enroll.Client, refs map[string]string) (map[string]string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		return c.Secrets(ctx, "abcdef", refs)
	}
	if got, err := ask(one, map[string]string{"DB": "secret:db#password"}); err != nil || got["DB"] != "recognisable" {
		t.Errorf("%v, %v", got, err)
	}
	for name, c := range map[string]struct {
		client *enroll.Client
		refs   map[string]string
		kind   errs.Kind
		says   string
	}{
		"another node":          {two, map[string]string{"DB": "secret:db#password"}, errs.Denied, "not placed on it"},
		"another secret":        {one, map[string]string{"DB": "secret:other#password"}, errs.Denied, "another reference"},
		"another variable":      {one, map[string]string{"X": "secret:other#password"}, errs.Denied, "another reference"},
		"what was overridden":   {one, map[string]string{"GIVEN": "secret:db#password"}, errs.Denied, "another reference"},
		"no such key":           {one, map[string]string{"GIVEN": given}, errs.NotFound, "no such key"},
		"a value of the node's": {one, map[string]string{"FILE": "file:db"}, errs.Invalid, "the node itself"},
	} {
		if got, err := ask(c.client, c.refs); errs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v; want %v with %q", name, got, err, c.kind, c.says)
		}
	}
	services, _ := d.agent(d.bundle(d.services.Issue(pki.Identity{Service: pki.Scheduler})))
	if _, err := ask(services, map[string]string{"DB": "secret:db#password"}); !errs.Is(err, errs.Denied) {
		t.Errorf("a scheduler: %v", err)
	}
	d.group("lobby", nil)
	d.do("PUT", "/api/v1/secrets/db", `{"selector":"game=bedwars"}`).want(200)
	if got, err := ask(one, map[string]string{"DB": "secret:db#password"}); errs.KindOf(err) != errs.Denied || !strings.Contains(err.Error(), "game=bedwars") {
		t.Errorf("a secret of other groups: %v, %v", got, err)
	}
}

func TestSettingsOfNodesAreChecked(t *testing.T) {
	dir, services := t.TempDir(), trusttest.New(t)
	text := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign, err := pki.NewNodeAuthority("nodes", time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair := foreign.Pair()
	certified := services.Peers(pki.Identity{Service: pki.Gateway})
	for name, c := range map[string]struct {
		peers  *trust.Peers
		nodes  Nodes
		field  string
		advice string
	}{
		"no certificates":      {trust.BySecret(secret), Nodes{Listen: "127.0.0.1:0", Authority: "x"}, "nodes.listen", "needs trust.file"},
		"no authority":         {certified, Nodes{Listen: "127.0.0.1:0"}, "nodes.authority", "orrery pki init"},
		"an absent authority":  {certified, Nodes{Listen: "127.0.0.1:0", Authority: filepath.Join(dir, "absent")}, "nodes.authority", "cannot be read"},
		"a broken authority":   {certified, Nodes{Listen: "127.0.0.1:0", Authority: text("broken", "x")}, "nodes.authority", "PEM"},
		"an unknown authority": {certified, Nodes{Listen: "127.0.0.1:0", Authority: text("foreign", string(pair.Cert)+string(pair.Key))}, "nodes.authority", "not trusted by trust.file"},
		"a short life":         {certified, Nodes{Listen: "127.0.0.1:0", Authority: "x", CertificateLife: time.Second}, "nodes.certificate-life", "at least 1m"},
		"a plain URL":          {certified, Nodes{Listen: "127.0.0.1:0", Authority: "x", URL: "http://h:1"}, "nodes.url", "https://"},
	} {
		cfg := Config{Peers: c.peers, Nodes: c.nodes}
		if _, err := cfg.nodeAuthority(); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != c.field || !strings.Contains(err.Error(), c.advice) {
			t.Errorf("%s: %v, want Invalid for %s with %q", name, err, c.field, c.advice)
		}
	}
}
