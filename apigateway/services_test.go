package apigateway

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
)

func TestAServiceRenewsItsOwnCertificate(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	if !d.session().Renews {
		t.Error("the gateway's record does not say that it renews")
	}
	for _, who := range []pki.Identity{
		{Service: pki.Scheduler}, {Service: pki.Scheduler, Name: "s1"}, {Service: pki.Enforcer}, {Service: pki.Templates}, {Service: pki.Gateway, Name: "other"},
	} {
		client, credentials := d.client(d.forPeers, d.bundle(d.services.Issue(who)))
		before := credentials.Bundle()
		if err := (enroll.Renewal{Ask: client.Renew, Credentials: credentials}).Renew(t.Context()); err != nil {
			t.Errorf("%s: %v", who.Path(), err)
			continue
		}
		after := credentials.Bundle()
		if after.Identity() != who || after.VerifyOwn(time.Now()) != nil || !slices.Equal(after.Names(), []string{"test authority", "nodes"}) {
			t.Errorf("%s: it has the certificate of %s, which trusts %v", who.Path(), after.Identity().Path(), after.Names())
		}
		if left := time.Until(after.NotAfter()); left > enroll.Life || left < enroll.Life-time.Minute {
			t.Errorf("%s: the certificate is valid for %v", who.Path(), left)
		}
		if bytes.Equal(after.Certificate().Certificate[0], before.Certificate().Certificate[0]) || after.Certificate().PrivateKey.(*ecdsa.PrivateKey).Equal(before.Certificate().PrivateKey) {
			t.Errorf("%s: the certificate or the key is the old one", who.Path())
		}
		if err := (enroll.Renewal{Ask: client.Renew, Credentials: credentials}).Renew(t.Context()); err != nil {
			t.Errorf("%s with the new certificate: %v", who.Path(), err)
		}
	}
}

// requestFor returns a signing request that names an identity, which our programs never do.
func requestFor(t *testing.T, who pki.Identity) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	uri, err := url.Parse(who.String())
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: who.Path()}, URIs: []*url.URL{uri}, DNSNames: []string{"etcd-1"},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// renewAs asks for a certificate over a connection with any certificate, and returns the status, or the error.
func (d *domain) renewAs(certificate *pki.Pair, csr []byte) (answer string, got []byte) {
	d.t.Helper()
	settings := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} // the gateway shall refuse, not the client
	if certificate != nil {
		pair, err := tls.X509KeyPair(certificate.Cert, certificate.Key)
		if err != nil {
			d.t.Fatal(err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	body, err := json.Marshal(enroll.RenewRequest{CSR: csr})
	if err != nil {
		d.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}
	reply, err := client.Post(d.forPeers+enroll.RenewPath, "application/json", bytes.NewReader(body))
	if err != nil {
		return err.Error(), nil
	}
	defer reply.Body.Close()
	if got, err = io.ReadAll(reply.Body); err != nil {
		d.t.Fatal(err)
	}
	return fmt.Sprint(reply.StatusCode, " ", string(got)), got
}

func TestARequestThatNamesAnotherServiceRenewsTheCallersCertificate(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	who := pki.Identity{Service: pki.Scheduler, Name: "s1"}
	own := d.services.Issue(who)
	for _, other := range []pki.Identity{{Service: pki.Gateway}, {Service: pki.Scheduler, Name: "s2"}, {Service: pki.Etcd}, {Service: pki.Agent, Name: "n1"}} {
		answer, body := d.renewAs(&own, requestFor(t, other))
		var got enroll.Certificate
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
		block, _ := pem.Decode(got.Certificate)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if is, err := pki.IdentityOf(cert); err != nil || is != who || cert.IsCA || len(cert.DNSNames) > 0 || cert.Subject.CommonName != who.Path() {
			t.Errorf("asked as %s for %s: %v, CA %v, hosts %v, %v", who.Path(), other.Path(), is, cert.IsCA, cert.DNSNames, err)
		}
	}
}

// etcd trusts the authority of services, so a node that got a certificate of it would own the cluster.
func TestOnlyAServiceGetsTheCertificateOfAService(t *testing.T) {
	t.Parallel()
	var log proctest.Buffer
	d := newDomain(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	_, text, err := join(t, d.invite(`{"nodeId":"node-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	joined, err := pki.ParseBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, credentials := d.agent(text); credentials.Bundle().Identity().Service != pki.Agent {
		t.Fatal("the joined host is no agent")
	}
	issue := func(by *pki.Authority, who pki.Identity, end time.Duration) *pki.Pair {
		t.Helper()
		now := time.Now()
		p, err := by.Issue(pki.Request{Name: who.Path(), Identity: who, Server: true, Client: true, Now: now.Add(end - time.Hour), Until: now.Add(end)})
		if err != nil {
			t.Fatal(err)
		}
		return &p
	}
	scheduler, node := pki.Identity{Service: pki.Scheduler}, pki.Identity{Service: pki.Agent, Name: "node-1"}
	for name, c := range map[string]struct {
		certificate *pki.Pair
		says        string
	}{
		"a node that joined":                         {pairOf(t, joined), "403"},
		"a node":                                     {issue(d.nodes, node, time.Hour), "403"},
		"a scheduler of the authority of nodes":      {issue(d.nodes, scheduler, time.Hour), "bad certificate"},
		"a gateway of the authority of nodes":        {issue(d.nodes, pki.Identity{Service: pki.Gateway}, time.Hour), "bad certificate"},
		"an agent of the authority of services":      {issue(d.services.Authority, node, time.Hour), "403"},
		"etcd":                                       {issue(d.services.Authority, pki.Identity{Service: pki.Etcd}, time.Hour), "403"},
		"a scheduler of another authority":           {issue(trusttest.New(t).Authority, scheduler, time.Hour), "bad certificate"},
		"a scheduler whose certificate has expired":  {issue(d.services.Authority, scheduler, -time.Minute), "bad certificate"},
		"a scheduler whose certificate is not valid": {issue(d.services.Authority, scheduler, 2*time.Hour), "bad certificate"},
		"a caller without a certificate":             {nil, "bad certificate"},
	} {
		request, err := pki.NewSigningRequest()
		if err != nil {
			t.Fatal(err)
		}
		answer, body := d.renewAs(c.certificate, request.CSR)
		if !strings.Contains(answer, c.says) || bytes.Contains(body, []byte("certificate\"")) {
			t.Errorf("%s: %s, want %q", name, answer, c.says)
		}
	}
	if strings.Contains(log.String(), "the certificate of a service is renewed") {
		t.Errorf("one was renewed:\n%s", log.String())
	}
}

func pairOf(t *testing.T, b *pki.Bundle) *pki.Pair {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(b.Certificate().PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return &pki.Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Certificate[0]}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}

func TestARequestWithoutAKeyGetsNoCertificate(t *testing.T) {
	t.Parallel()
	d := newDomain(t)
	own := d.services.Issue(pki.Identity{Service: pki.Enforcer})
	for _, csr := range [][]byte{nil, []byte("x"), own.Cert, bytes.Repeat([]byte("x"), maxRenewal)} {
		if answer, _ := d.renewAs(&own, csr); !strings.HasPrefix(answer, "4") {
			t.Errorf("%d bytes: %s", len(csr), answer)
		}
	}
}

// The answer carries the authorities of the gateway, so that a new one reaches services like nodes.
func TestAServiceLearnsANewAuthorityByItsRenewal(t *testing.T) {
	t.Parallel()
	d, next := newDomain(t), trusttest.New(t)
	client, credentials := d.client(d.forPeers, d.bundle(d.services.Issue(pki.Identity{Service: pki.Scheduler})))
	trusttest.Write(t, d.gateway.cfg.Peers.Credentials().Path(), pki.NewBundle(d.services.Issue(pki.Identity{Service: pki.Gateway}), d.services.Pair().Cert, d.nodes.Pair().Cert, next.Pair().Cert))
	if err := (enroll.Renewal{Ask: client.Renew, Credentials: credentials}).Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !credentials.Bundle().Trusts(next.Pair().Cert) || !credentials.Bundle().Trusts(d.services.Pair().Cert) {
		t.Errorf("it trusts %v", credentials.Bundle().Names())
	}
}

func TestAGatewayRenewsItsOwnCertificate(t *testing.T) {
	t.Parallel()
	authority, dir := trusttest.New(t), t.TempDir()
	who, now := pki.Identity{Service: pki.Gateway, Name: "g1"}, time.Now()
	p, err := authority.Authority.Issue(pki.Request{Name: who.Path(), Identity: who, Server: true, Client: true, Now: now.Add(-24 * time.Hour), Until: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	file, own := filepath.Join(dir, "authority.pem"), filepath.Join(dir, "trust.pem")
	trusttest.Write(t, file, slices.Concat(authority.Pair().Cert, authority.Pair().Key))
	trusttest.Write(t, own, pki.NewBundle(p, authority.Pair().Cert))
	credentials, err := trust.Open(own, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	newSite(t, func(c *Config) {
		c.Peers, c.PeerListen, c.Services = trust.ByCertificate(credentials), "127.0.0.1:0", Services{Authority: file}
	})
	await.That(t, "the renewed certificate", func() string {
		return await.Unless(credentials.Bundle().NotAfter().After(now.Add(2*time.Hour)), "it is valid until %v", credentials.Bundle().NotAfter())
	})
	if credentials.Bundle().Identity() != who {
		t.Errorf("it is of %s", credentials.Bundle().Identity().Path())
	}
}

func TestAGatewayWithoutTheAuthorityRenewsNothing(t *testing.T) {
	t.Parallel()
	d := newDomain(t, func(c *Config) { c.Services = Services{} })
	if d.session().Renews {
		t.Error("the gateway's record says that it renews")
	}
	for service, says := range map[string]string{pki.Scheduler: "403", pki.Gateway: "404"} {
		own := d.services.Issue(pki.Identity{Service: service})
		if answer, _ := d.renewAs(&own, requestFor(t, pki.Identity{Service: service})); !strings.HasPrefix(answer, says) {
			t.Errorf("%s: %s, want %s", service, answer, says)
		}
	}
}

func TestSettingsOfServicesAreChecked(t *testing.T) {
	dir, services := t.TempDir(), trusttest.New(t)
	write := func(name string, p pki.Pair) string {
		path := filepath.Join(dir, name)
		trusttest.Write(t, path, slices.Concat(p.Cert, p.Key))
		return path
	}
	own := write("authority.pem", services.Pair())
	nodes, err := pki.NewNodeAuthority("nodes", time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "trust.pem")
	trusttest.Write(t, path, pki.NewBundle(services.Issue(pki.Identity{Service: pki.Gateway}), services.Pair().Cert, nodes.Pair().Cert))
	credentials, err := trust.Open(path, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	certified := trust.ByCertificate(credentials)
	for name, c := range map[string]struct {
		peers    *trust.Peers
		services Services
		field    string
		advice   string
	}{
		"no certificates":        {trust.BySecret(secret), Services{Authority: own}, "services.authority", "needs trust.file"},
		"an absent authority":    {certified, Services{Authority: filepath.Join(dir, "absent")}, "services.authority", "cannot be read"},
		"only its certificate":   {certified, Services{Authority: write("public", pki.Pair{Cert: services.Pair().Cert})}, "services.authority", "no private key"},
		"an unknown authority":   {certified, Services{Authority: write("foreign", trusttest.New(t).Pair())}, "services.authority", "not trusted by trust.file"},
		"the authority of nodes": {certified, Services{Authority: write("nodes.pem", nodes.Pair())}, "services.authority", "authority of nodes"},
		"a short life":           {certified, Services{Authority: own, CertificateLife: time.Second}, "services.certificate-life", "at least 1m"},
	} {
		cfg := Config{Peers: c.peers, Services: c.services}
		if _, err := cfg.serviceAuthority(); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != c.field || !strings.Contains(err.Error(), c.advice) {
			t.Errorf("%s: %v, want Invalid for %s with %q", name, err, c.field, c.advice)
		}
	}
}
