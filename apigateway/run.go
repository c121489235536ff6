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

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/peer"
	"github.com/orreryhq/orrery/apigateway/internal/rest"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// drainTimeout is how long requests under way may take when the gateway ends.
	drainTimeout = 5 * time.Second
	// hurryTimeout is how long those have after that to be told that they were too slow.
	hurryTimeout = time.Second
	// arrivalTimeout is how long accepted connections may take then to send their request.
	arrivalTimeout = time.Second
	// pingTimeout bounds the question whether etcd answers.
	pingTimeout = 2 * time.Second
	// tidyEvery is the pause between removals of what has outlived its use.
	tidyEvery = time.Hour
	// declareEvery is the pause between looks at what sources declare.
	declareEvery = time.Minute
)

// Run serves until ctx ends, or a client asked this replica to end; then it takes no new
// requests, lets those under way finish and returns, for a client with lifecycle.ErrEnd. Invalid when the address cannot be listened on, or when the
// cluster secret is not the cluster's.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.calls.CloseIdleConnections()
	defer g.uploads.CloseIdleConnections()
	listener, err := g.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	in := &door{Listener: listener}
	streams, err := g.prepare(ctx)
	if err != nil {
		return err
	}
	httpServer := &http.Server{
		Handler:           peer.Before(g.frame, g.cfg.ClusterSecret, slices.Concat(g.relay.Doors(), streams.logs.Doors())...),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(g.cfg.Log.Handler(), slog.LevelDebug),
	}
	arriving := watchArrivals(httpServer)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	served := make(chan error, 1)
	running.Go(func() { served <- httpServer.Serve(in) })
	running.Go(func() { _ = g.session().Run(ctx) }) // ends with ctx, in no other way
	running.Go(func() { g.tidy(ctx) })
	running.Go(func() { g.declare.Run(ctx) })
	running.Go(func() { g.pins.Run(ctx) })
	running.Go(func() { g.operate.Run(ctx) })
	running.Go(func() { g.auth.Run(ctx) })
	running.Go(func() { g.auth.KeepPasswordFile(ctx) })
	running.Go(func() { g.copies.Run(ctx) })
	running.Go(func() { g.arrivals.Run(ctx) })
	running.Go(func() { g.heartbeats.Run(ctx) })
	running.Go(func() {
		series.Every(ctx, func(time.Time) { g.past.Add(g.cfg.Now(), rest.Sample(g.cfg.View.Snapshot())...) })
	})
	running.Go(func() { g.relay.Run(ctx) })
	g.serving.Store(true)
	close(g.ready)
	g.cfg.Log.Info("the API is up", "address", g.Addr())

	var ended error
	select {
	case err := <-served:
		streams.Close()
		return errs.As(errs.Internal, "apigateway.serve", err)
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

func (g *Gateway) listen(ctx context.Context) (net.Listener, error) {
	if g.cfg.Listener != nil {
		return g.cfg.Listener, nil
	}
	l, err := Listen(ctx, g.cfg.Listen)
	if err == nil {
		g.addr.Store(l.Addr().String())
	}
	return l, err
}

// Listen opens an address for the API. Invalid, saying what to do, when it cannot.
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

// prepare waits for the view, makes sure of keys and users, and wires the frame.
func (g *Gateway) prepare(ctx context.Context) (openStreams, error) {
	if err := g.cfg.View.Synced(ctx); err != nil {
		return openStreams{}, err
	}
	meta := g.cfg.Meta
	if meta.ClusterID == "" {
		var err error
		if meta, err = store.Get(ctx, g.cfg.Store, store.MetaKey()); err != nil {
			return openStreams{}, errs.Wrap("apigateway.prepare", err)
		}
	}
	if err := g.auth.Start(ctx); err != nil {
		return openStreams{}, err
	}
	if err := g.operate.EnterEgress(ctx, g.cfg.lookup); err != nil {
		return openStreams{}, err
	}
	return g.wire(meta)
}

func (g *Gateway) session() *store.Replica {
	url := g.cfg.APIURL
	if url == "" {
		url = "http://" + g.Addr()
	}
	return &store.Replica{
		Client: g.cfg.Store, TTL: g.cfg.SessionTTL, Takeover: g.cfg.Takeover, Log: g.cfg.Log,
		Self: fleet.Session{Service: serviceName, Replica: g.cfg.Replica, URL: url, Version: g.cfg.Version, StartedAt: g.cfg.Now().UTC()},
	}
}

// drain ends the streams, whose clients come back elsewhere, and waits for the rest. Who does
// not finish in time is not waited for: a body that stands still is no reason to fail.
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

// tidy removes old records now and then.
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

// waiting is what keeps the gateway from serving well.
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

// streamCaller is who opens a stream without a ticket.
func streamCaller(c *gin.Context) (fleet.Credential, error) {
	who, ok := server.Identity(c)
	switch {
	case !ok:
		return fleet.Credential{}, errs.New(errs.Unauthenticated, "send a ticket, or a token")
	case !who.Can(auth.EventsStream):
		return fleet.Credential{}, errs.New(errs.Denied, "%s", who.Lacks(auth.EventsStream))
	}
	return who.Credential(), nil
}
