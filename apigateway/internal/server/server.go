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
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

// publicLimit is the limit of requests a minute with a PUBLIC token, which the older API documents.
const publicLimit = 100

// Config has the dependencies of a Server.
type Config struct {
	Auth *auth.Service
	// Operations remember requests with an Idempotency-Key.
	Operations *ops.Operations
	View       *view.View
	Log        *slog.Logger
	Metrics    *telemetry.Metrics
	Now        func() time.Time
	// Settings may change at any time.
	Settings *settings.Live
	// Replicas returns the number of live gateways, at least 1. It must be fast.
	Replicas func() int
	// Secret is the cluster secret.
	Secret string
}

// Server is the HTTP frame and the handler of its routes.
type Server struct {
	engine *gin.Engine
	// routes maps method and path to the route.
	routes map[string]map[string]*mounted

	cfg               Config
	anonymous, logins *limiter[netip.Addr]
	public, users     *limiter[string]            // by API token ID and by user name
	tickets           *limiter[string]            // by the name of the user
	names             *limiter[[sha256.Size]byte] // by the hash of the name
	pictures          *limiter[string]            // by the user's ID
	instances         *limiter[string]            // by the instance's actor name
	uploads           uploads
	packers           *sync.Pool
	metrics           metrics
}

type metrics struct {
	requests, limited *prometheus.CounterVec
	seconds           *prometheus.HistogramVec
}

// New returns a Server without routes.
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

// spelled returns the sanitized method for an error message, because clients can send any method.
func spelled(method string) string {
	const longest = 32
	method = clean(method)
	return cmp.Or(method[:min(len(method), longest)], "this method")
}

// hint suggests a fix for an unknown path; "" if there is none.
func hint(path string) string {
	rest, of := strings.CutPrefix(path, "/api/v1/templates/")
	parts := strings.Split(rest, "/")
	if !of || len(parts) < 2 || parts[0] == "" || parts[1] == "" || strings.Contains(parts[0], "%2F") || len(parts[0])+len(parts[1]) > 128 {
		return ""
	}
	return ": if a template of a group is meant, encode the slash in its name, " + strings.Join(parts[:2], "%2F")
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.engine.ServeHTTP(w, r) }

// newEngine returns gin without redirects and trusted proxies. Encoded slashes stay inside their
// segment.
func newEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.ContextWithFallback = true
	e.RedirectTrailingSlash, e.RedirectFixedPath = false, false
	e.HandleMethodNotAllowed = true
	e.UseRawPath, e.UnescapePathValues = true, true
	_ = e.SetTrustedProxies(nil) // fails only for invalid addresses
	return e
}
