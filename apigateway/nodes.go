package apigateway

import (
	"cmp"
	"context"
	"net"
	"os"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/nodeaccess"
	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/reveal"
	"github.com/orreryhq/orrery/libs/store/etcdproxy"
)

// Nodes says how the gateway serves nodes that have joined with a token.
type Nodes struct {
	Listen          string        `config:"listen" usage:"address at which this gateway serves nodes that joined with a token: etcd with the rights of a node, certificates and secrets; needs trust.file; empty: it serves none"`
	URL             string        `config:"url" usage:"URL nodes reach that address by; empty: derived from nodes.listen, with the host's name if it listens on all addresses"`
	Authority       string        `config:"authority" usage:"file with the authority of the nodes' certificates and its key, in PEM: nodes.pem of orrery pki init; needed with nodes.listen"`
	CertificateLife time.Duration `config:"certificate-life" default:"24h" usage:"how long the certificate of a node is valid; its agent renews it at two thirds of that, and after 16h at the latest"`
}

// minCertificateLife leaves time for several attempts to renew a certificate.
const minCertificateLife = time.Minute

// Check names the settings that cannot be used. certified says whether the gateway has certificates.
func (n *Nodes) Check(certified bool) (problems []error) {
	check := func(ok bool, field, message string) {
		if !ok {
			problems = append(problems, errs.Field(field, "%s", message))
		}
	}
	check(n.CertificateLife >= minCertificateLife, "nodes.certificate-life", "must be at least 1m")
	if n.Listen == "" {
		return problems
	}
	check(certified, "nodes.listen", "needs trust.file: nodes must know the gateway by its certificate")
	check(n.Authority != "", "nodes.authority", "is needed with nodes.listen: orrery pki init writes it as nodes.pem")
	return problems
}

// nodeAuthority reads the authority of the nodes' certificates. It is nil if the gateway serves no nodes.
func (c *Config) nodeAuthority() (*pki.Authority, error) {
	if c.Nodes.Listen == "" {
		return nil, nil
	}
	c.Nodes.CertificateLife = cmp.Or(c.Nodes.CertificateLife, enroll.Life)
	if problems := c.Nodes.Check(c.Peers.Certified()); len(problems) > 0 {
		return nil, problems[0]
	}
	if err := c.Peers.CheckURL("nodes.url", c.Nodes.URL); err != nil {
		return nil, err
	}
	return c.readAuthority("nodes.authority", c.Nodes.Authority)
}

// readAuthority reads an authority, which the own bundle must trust, from the file of a setting.
func (c *Config) readAuthority(field, path string) (*pki.Authority, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.Field(field, "%s cannot be read: %v", field, err)
	}
	pair, err := pki.ParsePair(text)
	if err != nil {
		return nil, errs.Field(field, "%s %s: %s", field, path, errs.MessageOf(err))
	}
	authority, err := pki.LoadAuthority(pair)
	if err != nil {
		return nil, errs.Field(field, "%s %s: %s", field, path, errs.MessageOf(err))
	}
	if !c.Peers.Bundle().Trusts(pair.Cert) {
		return nil, errs.Field(field, "%s %s is not trusted by trust.file, so this gateway would refuse what it issues: issue the certificates of all services again with orrery pki issue", field, path)
	}
	return authority, nil
}

// listenForNodes opens the listener for nodes. It returns nil if the gateway serves none.
func (g *Gateway) listenForNodes(ctx context.Context) (net.Listener, error) {
	if g.nodeAuthority == nil {
		return nil, nil
	}
	l, err := Listen(ctx, g.cfg.Nodes.Listen)
	if err != nil {
		return nil, errs.Field("nodes.listen", "%s", errs.MessageOf(err))
	}
	return l, nil
}

// nodesURL returns the URL at which nodes reach the gateway; empty if it serves none.
func (g *Gateway) nodesURL(l net.Listener) string {
	if l == nil {
		return ""
	}
	return cmp.Or(g.cfg.Nodes.URL, g.cfg.Peers.URLOf(l.Addr()))
}

// serveNodes serves nodes until ctx ends.
func (g *Gateway) serveNodes(ctx context.Context, l net.Listener) {
	proxy := etcdproxy.New(etcdproxy.Config{
		Store: cmp.Or(g.cfg.NodesStore, g.cfg.Store), Snapshot: g.cfg.View.Snapshot, Peers: g.cfg.Peers, Secret: g.cfg.ClusterSecret, Log: g.cfg.Log,
	})
	g.cfg.Log.Info("nodes can join", "address", l.Addr().String())
	err := proxy.Serve(ctx, l, nodeaccess.Handler(nodeaccess.Config{
		Peers: g.cfg.Peers, Proxy: proxy, Store: g.cfg.Store, Issuer: g.issuer(g.nodeAuthority, g.cfg.Nodes.CertificateLife),
		UseToken: g.operate.UseJoinToken, Opener: reveal.NewOpener(g.ring), Gateways: g.nodesURLs, APIURL: g.url, API: g.frame, Log: g.cfg.Log,
	}))
	if err != nil {
		g.cfg.Log.Error("nodes can no longer reach this gateway: restart it", "error", err)
	}
}

// nodesURLs returns the URLs at which gateways and enforcers serve nodes.
func (g *Gateway) nodesURLs() []string {
	var all []string
	for _, s := range g.cfg.View.Snapshot().Sessions.All() {
		if s.NodesURL != "" {
			all = append(all, s.NodesURL)
		}
	}
	slices.Sort(all)
	return all
}

// wholeToken adds to a join token what its host must know. usable is false if no gateway serves nodes.
func (g *Gateway) wholeToken(token string, node fleet.NodeID) (text string, usable bool) {
	urls := g.nodesURLs()
	if len(urls) == 0 || !g.cfg.Peers.Certified() {
		return token, false
	}
	return enroll.Token{Secret: token, Node: node, Authority: g.cfg.Peers.Bundle().Issuer(), Gateways: urls}.String(), true
}
