package local

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/api"
	"github.com/orreryhq/orrery/nodeagent/internal/controller"
	"github.com/orreryhq/orrery/nodeagent/internal/node/membership"
)

const (
	// requestTimeout bounds the transmission of a request.
	requestTimeout = 10 * time.Second
	// maxHeader and maxBody bound the size of a request, in bytes.
	maxHeader = 16 << 10
	maxBody   = 64 << 10
)

// Config configures the API. All fields but Version are required.
type Config struct {
	Node fleet.NodeID
	// DataDir is the absolute path of the agent's data directory.
	DataDir   string
	Version   string
	Instances *controller.Controller
	// Contact returns the node's connection to the store.
	Contact func(now time.Time) membership.Contact
	Log     *slog.Logger
}

// Server returns the server of the local API, for a listener of Listen.
func Server(c Config) *http.Server {
	mux := api.Routes(c.Instances)
	mux.Handle("GET /v1/instances", listInstances(c))
	mux.Handle("GET /v1/agent", readAgent(c, time.Now().UTC()))
	mux.Handle("POST /v1/stop", stop(c))
	return &http.Server{
		Handler: logRequests(c.Log, mux), ConnContext: withPeer, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, IdleTimeout: requestTimeout,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
}

// logRequests logs who uses the API, at a higher level if something is changed.
func logRequests(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		level := slog.LevelInfo
		if r.Method == http.MethodGet {
			level = slog.LevelDebug
		}
		log.Log(r.Context(), level, "local request", "by", actor(r.Context()), "method", r.Method, "path", r.URL.Path)
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}
