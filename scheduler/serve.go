package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/scheduler/internal/api"
)

// DefaultListen is the default of Config.Listen.
const DefaultListen = "127.0.0.1:0"

// drainTimeout limits how long pending answers may take at shutdown.
const drainTimeout = 2 * time.Second

// writeTimeout is longer than any answer takes. It frees the turn of a client that does not
// read.
const writeTimeout = 30 * time.Second

// questions serves the read-only API. A nil questions serves nothing.
type questions struct {
	listener  net.Listener
	server    *http.Server
	advertise string
}

// listen opens the listener, so that its URL is known before Run. It returns nil without
// Config.Peers.
func listen(cfg Config, ask api.Ask) (*questions, error) {
	if cfg.Peers == nil {
		return nil, nil
	}
	if err := cfg.Peers.CheckOwn(pki.Identity{Service: pki.Scheduler}); err != nil {
		return nil, err
	}
	if err := cfg.Peers.CheckURL("advertise-url", cfg.AdvertiseURL); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, &errs.Error{
			Op: "scheduler.New", Kind: errs.Invalid, Field: "listen", Err: err,
			Message: fmt.Sprintf("%s cannot be listened on: %v; choose another address", cfg.Listen, err),
		}
	}
	return &questions{listener: cfg.Peers.Listener(l), advertise: cmp.Or(cfg.AdvertiseURL, cfg.Peers.URLOf(l.Addr())), server: &http.Server{
		Handler: api.Handler(ask, cfg.Peers, api.DefaultLimits()), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}}, nil
}

// url returns the URL for others, or "" without an API.
func (q *questions) url() string {
	if q == nil {
		return ""
	}
	return q.advertise
}

// run serves until ctx ends and then lets pending answers finish.
func (q *questions) run(ctx context.Context) error {
	if q == nil {
		return nil
	}
	return wire.Serve(ctx, q.server, q.listener, drainTimeout)
}
