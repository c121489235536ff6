package enforcer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/api"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/wire"
)

// DefaultListen is the default of Config.Listen.
const DefaultListen = "127.0.0.1:0"

const (
	// drainTimeout limits how long pending answers may take at shutdown.
	drainTimeout = 2 * time.Second
	// writeTimeout is longer than any answer takes. It frees the turn of a client that does not read.
	writeTimeout = 30 * time.Second
)

// questions serves the read-only API. A nil questions serves nothing.
type questions struct {
	listener  net.Listener
	server    *http.Server
	advertise string
}

// listen opens the listener, so that its URL is known before Run. It returns nil without
// Config.Peers.
func listen(cfg Config) (*questions, error) {
	if cfg.Peers == nil {
		return nil, nil
	}
	if err := cfg.Peers.CheckOwn(pki.Identity{Service: pki.Enforcer}); err != nil {
		return nil, err
	}
	if err := cfg.Peers.CheckURL("advertise-url", cfg.AdvertiseURL); err != nil {
		return nil, err
	}
	address := cmp.Or(cfg.Listen, DefaultListen)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &errs.Error{
			Op: "enforcer.New", Kind: errs.Invalid, Field: "listen", Err: err,
			Message: fmt.Sprintf("%s cannot be listened on: %v; choose another address", address, err),
		}
	}
	return &questions{listener: cfg.Peers.Listener(l), advertise: cmp.Or(cfg.AdvertiseURL, cfg.Peers.URLOf(l.Addr()))}, nil
}

// answer sets what answers the questions.
func (q *questions) answer(cfg Config, replay api.Replay) {
	if q == nil {
		return
	}
	q.server = &http.Server{
		Handler: api.Handler(replay, cfg.Peers), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
}

func (q *questions) close() {
	if q != nil {
		_ = q.listener.Close()
	}
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
