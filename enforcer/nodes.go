package enforcer

import (
	"cmp"
	"context"
	"net"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/etcdproxy"
)

// nodes serves etcd to nodes; nil serves none.
type nodes struct {
	listener  net.Listener
	advertise string
	proxy     *etcdproxy.Proxy
}

// listenForNodes opens the listener for nodes, so that its URL is known before Run. It returns nil without
// Config.NodesListen.
func listenForNodes(cfg Config) (*nodes, error) {
	if cfg.NodesListen == "" {
		return nil, nil
	}
	if cfg.Peers == nil || !cfg.Peers.Certified() || cfg.Secret == "" {
		return nil, errs.Field("nodes.listen", "needs trust.file, because nodes must know the enforcer by its certificate, and cluster.secret")
	}
	if err := cfg.Peers.CheckURL("nodes.url", cfg.NodesURL); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.NodesListen)
	if err != nil {
		return nil, errs.Field("nodes.listen", "%s cannot be listened on: %v; choose another address", cfg.NodesListen, err)
	}
	return &nodes{
		listener: l, advertise: cmp.Or(cfg.NodesURL, cfg.Peers.URLOf(l.Addr())),
		proxy: etcdproxy.New(etcdproxy.Config{Store: cfg.Store, Snapshot: cfg.View.Snapshot, Peers: cfg.Peers, Secret: cfg.Secret, Log: cfg.Log}),
	}, nil
}

// url returns the URL for nodes, or "" if none are served.
func (n *nodes) url() string {
	if n == nil {
		return ""
	}
	return n.advertise
}

func (n *nodes) close() {
	if n != nil {
		_ = n.listener.Close()
	}
}

// run serves until ctx ends.
func (n *nodes) run(ctx context.Context) error {
	if n == nil {
		return nil
	}
	mux := http.NewServeMux()
	n.proxy.Register(mux)
	return n.proxy.Serve(ctx, n.listener, mux)
}
