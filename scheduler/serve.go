package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/scheduler/internal/api"
)

// DefaultListen is where questions are asked unless told otherwise.
const DefaultListen = "127.0.0.1:0"

// drainTimeout is how long answers under way may take when the service ends.
const drainTimeout = 2 * time.Second

// writeTimeout is more than an answer takes: who does not read it keeps others from
// their turn no longer.
const writeTimeout = 30 * time.Second

// questions is the listener of the read-only API. Nil serves none.
type questions struct {
	listener  net.Listener
	server    *http.Server
	advertise string
}

// listen opens the listener, so that its URL is known before it is served. Without
// a secret there is no API.
func listen(cfg Config, ask api.Ask) (*questions, error) {
	if cfg.ClusterSecret == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, &errs.Error{
			Op: "scheduler.New", Kind: errs.Invalid, Field: "listen", Err: err,
			Message: fmt.Sprintf("%s cannot be listened on: %v; choose another address", cfg.Listen, err),
		}
	}
	return &questions{listener: l, advertise: cfg.AdvertiseURL, server: &http.Server{
		Handler: api.Handler(ask, cfg.ClusterSecret, api.DefaultLimits()), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}}, nil
}

// url is where others reach the API, "" when there is none.
func (q *questions) url() string {
	switch {
	case q == nil:
		return ""
	case q.advertise != "":
		return q.advertise
	}
	return wire.URLOf(q.listener.Addr())
}

// run serves until ctx ends, then lets answers under way finish.
func (q *questions) run(ctx context.Context) error {
	if q == nil {
		return nil
	}
	return wire.Serve(ctx, q.server, q.listener, drainTimeout)
}
