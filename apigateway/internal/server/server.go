package server

import (
	"cmp"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/settings"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

// publicLimit is how many requests a minute a PUBLIC token is good for, as clients of the
// older API were told.
const publicLimit = 100

// Config is what the frame needs.
type Config struct {
	Auth *auth.Service
	// Operations remember what was done for requests that are carried out once.
	Operations *operate.Operations
	View       *view.View
	Log        *slog.Logger
	Metrics    *telemetry.Metrics
	Now        func() time.Time
	// Settings may change at any time.
	Settings *settings.Live
	// Replicas is how many gateways live, 1 or more; it must be quick.
	Replicas func() int
	// Secret is the cluster's.
	Secret string
}

// Server is the frame, and the handler of all routes that are added to it.
type Server struct {
	engine *gin.Engine
	// routes are all there are, by method and path.
	routes map[string]map[string]*mounted

	cfg               Config
	anonymous, logins *limiter[netip.Addr]
	public, users     *limiter[string]            // by the id of an API token, and by name
	tickets           *limiter[string]            // by the name of the user
	names             *limiter[[sha256.Size]byte] // by the hash of the name
	pictures          *limiter[string]            // by the id of the user who shows them
	instances         *limiter[string]            // by the name of the actor that an instance is
	uploads           uploads
	packers           *sync.Pool
	metrics           metrics
}

type metrics struct {
	requests, limited *prometheus.CounterVec
	seconds           *prometheus.HistogramVec
}

// New makes a frame without routes.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, engine: newEngine(), routes: map[string]map[string]*mounted{}, packers: newPackers(),
		anonymous: newLimiter[netip.Addr](func() int { return cfg.Settings.Now().Anonymous }, cfg.Now, cfg.Replicas),
		logins:    newLimiter[netip.Addr](func() int { return cfg.Settings.Now().Logins }, cfg.Now, cfg.Replicas),
		names:     newLimiter[[sha256.Size]byte](func() int { return cfg.Settings.Now().Names }, cfg.Now, cfg.Replicas),
		users:     newLimiter[string](func() int { return cfg.Settings.Now().Users }, cfg.Now, cfg.Replicas),
		tickets:   newLimiter[string](func() int { return cfg.Settings.Now().Tickets }, cfg.Now, cfg.Replicas),
		public:    newLimiter[string](func() int { return publicLimit }, cfg.Now, cfg.Replicas),
		pictures:  newLimiter[string](func() int { return pictureLimit }, cfg.Now, alone).per(time.Hour),
		instances: newLimiter[string](func() int { return instanceLimit }, cfg.Now, alone).per(instanceSpan),
		metrics: metrics{
			requests: cfg.Metrics.Counter("http_requests", "Requests by route and status.", "method", "route", "status"),
			limited:  cfg.Metrics.Counter("http_requests_limited", "Requests refused because of a rate limit.", "limit"),
			seconds:  cfg.Metrics.Histogram("http_request", "seconds", "Time to answer.", nil, "method", "route"),
		},
	}
	s.engine.Use(ids, s.address, s.observe, s.recover, s.packing, endWithNewline, unlessSame, s.cors, s.admit, s.guard, queries, s.rehearsals, s.conditions, s.revisions, s.queue, s.bodies, s.fingerprint, s.once)
	s.engine.NoRoute(func(c *gin.Context) {
		Fail(c, errs.New(errs.NotFound, "there is no such route%s", hint(c.Request.URL.EscapedPath())))
	})
	s.engine.NoMethod(func(c *gin.Context) {
		Refuse(c, wire.Reply{Status: http.StatusMethodNotAllowed, Code: "METHOD_NOT_ALLOWED", Message: "this route does not take " + spelled(c.Request.Method)})
	})
	return s
}

// spelled is a method as it was sent, for whoever sent it: anybody can make one up.
func spelled(method string) string {
	const longest = 32
	method = clean(method)
	return cmp.Or(method[:min(len(method), longest)], "this method")
}

// hint is what may have been meant by a path that is no route; "" when nobody knows.
func hint(path string) string {
	rest, of := strings.CutPrefix(path, "/api/v1/templates/")
	parts := strings.Split(rest, "/")
	if !of || len(parts) < 2 || parts[0] == "" || parts[1] == "" || strings.Contains(parts[0], "%2F") || len(parts[0])+len(parts[1]) > 128 {
		return ""
	}
	return ": if a template of a group is meant, encode the slash in its name, " + strings.Join(parts[:2], "%2F")
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.engine.ServeHTTP(w, r) }

// newEngine is gin without its guesses: no redirects, no trusted proxies, encoded
// slashes stay inside their segment.
func newEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.ContextWithFallback = true
	e.RedirectTrailingSlash, e.RedirectFixedPath = false, false
	e.HandleMethodNotAllowed = true
	e.UseRawPath, e.UnescapePathValues = true, true
	_ = e.SetTrustedProxies(nil) // fails for addresses only, and there are none
	return e
}
