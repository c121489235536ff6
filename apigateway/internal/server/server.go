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
	"github.com/orreryhq/orrery/apigateway/internal/server/ratelimit"
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
	routes map[string]map[string]*Route

	cfg               Config
	anonymous, logins *ratelimit.Limiter[netip.Addr]
	public, users     *ratelimit.Limiter[string]            // by API token ID and by user name
	tickets           *ratelimit.Limiter[string]            // by the name of the user
	names             *ratelimit.Limiter[[sha256.Size]byte] // by the hash of the name
	pictures          *ratelimit.Limiter[string]            // by the user's ID
	instances         *ratelimit.Limiter[string]            // by the instance's actor name
	uploads           uploads
	gzipWriters       *sync.Pool
	metrics           metrics
}

type metrics struct {
	requests, limited *prometheus.CounterVec
	seconds           *prometheus.HistogramVec
}

// New returns a Server without routes.
func New(cfg Config) *Server {
	shared := func(limit func() int) ratelimit.Config {
		return ratelimit.Config{Limit: limit, Window: time.Minute, Now: cfg.Now, Replicas: cfg.Replicas}
	}
	s := &Server{
		cfg: cfg, engine: newEngine(), routes: map[string]map[string]*Route{}, gzipWriters: newGzipWriters(),
		anonymous: ratelimit.New[netip.Addr](shared(func() int { return cfg.Settings.Now().Anonymous })),
		logins:    ratelimit.New[netip.Addr](shared(func() int { return cfg.Settings.Now().Logins })),
		names:     ratelimit.New[[sha256.Size]byte](shared(func() int { return cfg.Settings.Now().Names })),
		users:     ratelimit.New[string](shared(func() int { return cfg.Settings.Now().Users })),
		tickets:   ratelimit.New[string](shared(func() int { return cfg.Settings.Now().Tickets })),
		public:    ratelimit.New[string](shared(func() int { return publicLimit })),
		pictures:  ratelimit.New[string](ratelimit.Config{Limit: func() int { return pictureLimit }, Window: time.Hour, Now: cfg.Now}),
		instances: ratelimit.New[string](ratelimit.Config{Limit: func() int { return instanceLimit }, Window: instanceWindow, Now: cfg.Now}),
		metrics: metrics{
			requests: cfg.Metrics.Counter("http_requests", "Requests by route and status.", "method", "route", "status"),
			limited:  cfg.Metrics.Counter("http_requests_limited", "Requests refused because of a rate limit.", "limit"),
			seconds:  cfg.Metrics.Histogram("http_request", "seconds", "Time to answer.", nil, "method", "route"),
		},
	}
	s.engine.Use(ids, s.address, s.observe, s.recover, s.compress, endWithNewline, unlessSame, s.cors, s.admit, s.authorize, checkQuery, s.checkDryRun, s.checkConditions, s.revisions, s.limitUploads, s.limitBody, s.fromYAML, s.fingerprint, s.once)
	s.engine.NoRoute(func(c *gin.Context) {
		Fail(c, errs.New(errs.NotFound, "there is no such route%s", hint(c.Request.URL.EscapedPath())))
	})
	s.engine.NoMethod(func(c *gin.Context) {
		Refuse(c, wire.Reply{Status: http.StatusMethodNotAllowed, Code: "METHOD_NOT_ALLOWED", Message: "this route does not take " + methodName(c.Request.Method)})
	})
	return s
}

// methodName returns the sanitized method for an error message, because clients can send any method.
func methodName(method string) string {
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
