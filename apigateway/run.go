package apigateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/system"
	"github.com/orreryhq/orrery/apigateway/internal/server/peer"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// drainTimeout limits how long requests in progress may take on shutdown.
	drainTimeout = 5 * time.Second
	// hurryTimeout is the additional time for sending them an error response.
	hurryTimeout = time.Second
	// arrivalTimeout limits how long accepted connections may take on shutdown to send their request.
	arrivalTimeout = time.Second
	// pingTimeout limits the check whether etcd answers.
	pingTimeout = 2 * time.Second
	// tidyEvery is the interval for removing old records.
	tidyEvery = time.Hour
	// declareEvery is the interval for applying declared objects without a change.
	declareEvery = time.Minute
)

// Run serves until ctx ends or a client asks this replica to shut down. Then it accepts no new requests,
// completes those in progress and returns; with lifecycle.ErrEnd if a client asked. It returns Invalid if
// the address is not usable, or the cluster secret or the key-encryption key is wrong.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.calls.CloseIdle()
	defer g.uploads.CloseIdle()
	defer g.gateways.CloseIdle()
	listener, err := g.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	others, err := g.listenForPeers(ctx)
	if err != nil {
		return err
	}
	if others != nil {
		defer others.Close() // servePeers closes it too
	}
	forNodes, err := g.listenForNodes(ctx)
	if err != nil {
		return err
	}
	if forNodes != nil {
		defer forNodes.Close() // serveNodes closes it too
	}
	in := &drainListener{Listener: listener}
	streams, err := g.prepare(ctx)
	if err != nil {
		return err
	}
	endpoints := slices.Concat(g.relay.PeerEndpoints(), streams.logs.PeerEndpoints())
	var handler http.Handler = g.frame
	if others == nil {
		handler = peer.Handler(g.frame, g.cfg.ClusterSecret, endpoints...)
	}
	httpServer := &http.Server{
		Handler:           g.secured(handler),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(g.cfg.Log.Handler(), slog.LevelDebug),
	}
	arriving := watchArrivals(httpServer)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	served := make(chan error, 1)
	running.Go(func() { served <- g.serve(httpServer, in) })
	session, endSession := context.WithCancel(context.WithoutCancel(ctx))
	if others != nil {
		running.Go(func() { g.servePeers(session, others, endpoints) })
	}
	if g.serviceAuthority != nil {
		running.Go(func() { g.renewOwn(ctx) })
	}
	if forNodes != nil {
		running.Go(func() { g.serveNodes(session, forNodes) })
	}
	running.Go(func() { _ = g.session(others, forNodes).Run(session) }) // ends with session, in no other way
	running.Go(func() { g.tidy(ctx) })
	running.Go(func() { g.applier.Run(ctx) })
	running.Go(func() { g.schedules.Run(ctx) })
	running.Go(func() { // another gateway continues at the positions that Run writes when it ends
		defer endSession()
		g.notices.Run(ctx)
	})
	running.Go(func() { g.hasher.Run(ctx) })
	running.Go(func() { g.drains.Run(ctx) })
	running.Go(func() { g.rollbacks.Run(ctx) })
	running.Go(func() { g.operate.Run(ctx) })
	running.Go(func() { g.auth.Run(ctx) })
	running.Go(func() { g.auth.KeepPasswordFile(ctx) })
	running.Go(func() { g.copies.Run(ctx) })
	running.Go(func() { g.arrivals.Run(ctx) })
	running.Go(func() { g.evacuations.Run(ctx) })
	running.Go(func() { g.operate.ExpireAllocations(ctx) })
	running.Go(func() { g.heartbeats.Run(ctx) })
	running.Go(func() {
		series.Every(ctx, func(time.Time) { g.past.Add(g.cfg.Now(), system.Sample(g.cfg.View.Snapshot())...) })
	})
	running.Go(func() { g.relay.Run(ctx) })
	if g.certificates != nil {
		running.Go(func() { g.certificates.Run(ctx) })
	}
	g.serving.Store(true)
	close(g.ready)
	g.cfg.Log.Info("the API is up", "address", g.Addr(), "tls", g.certificates != nil)
	if g.insecureHTTP.Load() {
		g.cfg.Log.Warn("the API is served to other hosts without TLS, as insecure-http permits: everybody on the way can read passwords and tokens", "address", g.Addr())
	}

	var ended error
	select {
	case err := <-served:
		streams.Close()
		return errs.WrapAs(errs.Internal, "apigateway.serve", err)
	case <-g.ending:
		ended = lifecycle.ErrEnd
	case <-ctx.Done():
	}
	g.serving.Store(false)
	in.shut() // from here on connections are refused, and clients go elsewhere
	<-served  // who has come through before is known now
	arriving.wait(arrivalTimeout)
	g.drain(httpServer, arriving, streams)
	return ended
}

func (g *Gateway) listen(ctx context.Context) (l net.Listener, err error) {
	if l = g.cfg.Listener; l == nil {
		if l, err = Listen(ctx, g.cfg.Listen); err != nil {
			return nil, err
		}
		if err := g.cfg.Transport.Check(l.Addr()); err != nil {
			_ = l.Close()
			return nil, err
		}
		g.addr.Store(l.Addr().String())
	}
	g.insecureHTTP.Store(g.cfg.insecure(l.Addr()))
	return l, nil
}

// serve serves HTTP, or HTTPS if the gateway has certificates, until the listener ends.
func (g *Gateway) serve(s *http.Server, l net.Listener) error {
	if g.certificates == nil {
		return s.Serve(l)
	}
	s.TLSConfig = g.certificates.TLS()
	return s.ServeTLS(l, "", "")
}

// secured adds what responses over TLS have.
func (g *Gateway) secured(next http.Handler) http.Handler {
	if g.certificates == nil || g.cfg.TLS.HSTS <= 0 {
		return next
	}
	return hsts(next, g.cfg.TLS.HSTS)
}

// listenForPeers opens the listener for other gateways and services. It returns nil without certificates.
func (g *Gateway) listenForPeers(ctx context.Context) (net.Listener, error) {
	if !g.cfg.Peers.Certified() {
		return nil, nil
	}
	l, err := Listen(ctx, g.cfg.PeerListen)
	if err != nil {
		return nil, errs.Field("peers.listen", "%s", errs.MessageOf(err))
	}
	return l, nil
}

// servePeers serves other gateways and services until ctx ends.
func (g *Gateway) servePeers(ctx context.Context, l net.Listener, endpoints []peer.Endpoint) {
	s := &http.Server{
		Handler: g.renewing(peer.Certified(g.cfg.Peers, endpoints...)), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(g.cfg.Log.Handler(), slog.LevelDebug),
	}
	if err := wire.Serve(ctx, s, g.cfg.Peers.Listener(l), time.Second); err != nil {
		g.cfg.Log.Error("other gateways and services can no longer reach this one: restart it", "error", err)
	}
}

// Listen opens a listener for the API. It returns Invalid, with advice, on failure.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	message := fmt.Sprintf("%s cannot be listened on: %v", address, err)
	if errors.Is(err, syscall.EADDRINUSE) {
		message = fmt.Sprintf("%s is in use by another program: stop it, or choose another address", address)
	}
	return nil, &errs.Error{Op: "listen", Kind: errs.Invalid, Message: message}
}

// prepare waits for the view, creates keys and users if necessary, and wires the server.
func (g *Gateway) prepare(ctx context.Context) (openStreams, error) {
	if err := g.cfg.View.Synced(ctx); err != nil {
		return openStreams{}, err
	}
	meta := g.cfg.Meta
	if meta.ClusterID == "" {
		var err error
		if meta, err = store.Get(ctx, g.cfg.Store, keys.Meta()); err != nil {
			return openStreams{}, errs.Wrap("apigateway.prepare", err)
		}
	}
	if err := g.operate.EnsureKeyring(ctx); err != nil {
		return openStreams{}, err
	}
	if err := g.auth.Start(ctx); err != nil {
		return openStreams{}, err
	}
	if err := g.operate.EnterEgress(ctx, g.cfg.lookup); err != nil {
		return openStreams{}, err
	}
	return g.wire(meta)
}

// url returns the URL at which others reach the API. The gateway must listen.
func (g *Gateway) url() string {
	switch {
	case g.cfg.APIURL != "":
		return g.cfg.APIURL
	case g.certificates != nil:
		return "https://" + g.Addr()
	}
	return "http://" + g.Addr()
}

func (g *Gateway) session(others, forNodes net.Listener) *store.Replica {
	peerURL := g.cfg.PeerURL
	if others != nil && peerURL == "" {
		peerURL = g.cfg.Peers.URLOf(others.Addr())
	}
	return &store.Replica{
		Client: g.cfg.Store, TTL: g.cfg.SessionTTL, Takeover: g.cfg.Takeover, Log: g.cfg.Log,
		Self: cluster.Session{Service: serviceName, Replica: g.cfg.Replica, URL: g.url(), PeerURL: peerURL, Renews: g.serviceAuthority != nil, NodesURL: g.nodesURL(forNodes), SealKeys: g.ring.KeyIDs(), Version: g.cfg.Version, StartedAt: g.cfg.Now().UTC()},
	}
}

// drain ends the streams, whose clients reconnect elsewhere, and waits for the other requests. Requests
// that do not end in time are cut; that is not an error.
func (g *Gateway) drain(s *http.Server, arriving *arrivals, streams openStreams) {
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(streams.Close)
	if shutDown(s, drainTimeout) {
		return
	}
	left := arriving.hurry()
	if !shutDown(s, hurryTimeout) {
		_ = s.Close()
	}
	g.cfg.Log.Warn("requests were cut that did not end in time", "requests", left, "after", drainTimeout)
}

// shutDown reports whether all requests ended in time.
func shutDown(s *http.Server, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.Shutdown(ctx) == nil
}

// tidy removes old records periodically.
func (g *Gateway) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		err := errors.Join(
			g.operate.PruneAudit(ctx), g.operate.PruneCredentials(ctx), g.auth.PruneTokens(ctx),
			g.operate.PruneJoinTokens(ctx), g.operate.PruneRevokedNodes(ctx), g.shares.Tidy(ctx),
		)
		if err != nil && ctx.Err() == nil {
			g.cfg.Log.Warn("old records not removed, trying again later", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// waiting returns the reasons why the gateway is not ready.
func (g *Gateway) waiting(ctx context.Context) []string {
	var out []string
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := g.cfg.Store.Ping(ctx); err != nil {
		out = append(out, "store")
	}
	if !g.serving.Load() {
		out = append(out, "serving")
	}
	return out
}
