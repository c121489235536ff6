package telemetry

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
)

// DefaultAdminAddress is a free port on the loopback interface.
const DefaultAdminAddress = "127.0.0.1:0"

// AdminOptions configures the admin listener.
type AdminOptions struct {
	// Address is host:port. Empty means DefaultAdminAddress.
	Address string
	// Gatherer provides the metrics of /metrics.
	Gatherer prometheus.Gatherer
	// Ready answers /readyz: it reports whether the service is ready, and the names of the conditions
	// it waits for. A ready service may list those that it currently works without. lifecycle's Gates.Ready fits.
	// Nil means always ready.
	Ready func() (ready bool, waiting []string)
	// Secret is the bearer token for profiles. If it is empty, profiles are refused.
	Secret string
	// Log receives errors while serving.
	Log *slog.Logger
}

// Admin is the admin listener:
//
//	/livez          200 while the process serves
//	/readyz         200 when ready, else 503 with what it waits for
//	/metrics        Prometheus text format
//	/debug/pprof/   profiles, for callers with the secret
type Admin struct {
	options  AdminOptions
	server   *http.Server
	listener net.Listener // written by start before run reads it
	addr     atomic.Value // string
}

// NewAdmin returns an admin listener. Component runs it.
func NewAdmin(o AdminOptions) *Admin {
	if o.Address == "" {
		o.Address = DefaultAdminAddress
	}
	a := &Admin{options: o}
	a.addr.Store("")
	a.server = &http.Server{
		Handler:           a.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	return a
}

// Addr returns the address of the listener, "" before it is started.
func (a *Admin) Addr() string {
	addr, _ := a.addr.Load().(string)
	return addr
}

// Component starts to listen in Start, so that an address in use fails the program's start, and
// serves until it is stopped. Put it first in the list: it then stops last and shows what the
// other components wait for.
func (a *Admin) Component() lifecycle.Component {
	return lifecycle.Component{Name: "admin", Start: a.start, Run: a.run, Stop: a.stop, StopTimeout: 2 * time.Second}
}

func (a *Admin) start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.options.Address)
	if err != nil {
		return &errs.Error{Kind: errs.Invalid, Field: "admin.address", Message: whyNot(a.options.Address, err), Err: err}
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		a.server.Handler = byAddress(a.server.Handler)
	}
	a.listener = l
	a.addr.Store(l.Addr().String())
	a.options.Log.Info("admin listener is up", "address", a.Addr())
	return nil
}

func whyNot(address string, err error) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Sprintf("admin.address %s is in use by another process: choose another port, or 0 for a free one", address)
	}
	return fmt.Sprintf("cannot listen on admin.address %s", address)
}

func (a *Admin) run(context.Context) error {
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stop lets short requests finish. A running profile is interrupted.
func (a *Admin) stop(ctx context.Context) error {
	if err := a.server.Shutdown(ctx); err != nil {
		return a.server.Close()
	}
	return nil
}

// byAddress refuses requests whose Host is neither localhost nor an IP address. Otherwise a web
// page whose name resolves to loopback could read, in the browser of a user of this host, what the
// listener serves without a token (DNS rebinding).
func byAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" {
			answer(w, http.StatusForbidden, "this listener is on loopback and only answers requests for localhost or its IP address, not for "+strconv.Quote(r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Handler returns the admin endpoints, for a service that already has a listener.
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.options.Gatherer, promhttp.HandlerOpts{
		ErrorLog:      unsaid{slog.NewLogLogger(a.options.Log.Handler(), slog.LevelWarn)},
		ErrorHandling: promhttp.ContinueOnError,
	}))
	for path, profile := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		mux.Handle("GET "+path, a.demandSecret(profile))
	}
	return mux
}

// demandSecret refuses profiles to callers without the secret, because profiles show memory and
// cost time.
func (a *Admin) demandSecret(profile http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, sent := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case a.options.Secret == "":
			answer(w, http.StatusForbidden, "profiles require the cluster secret, which this program does not have: set cluster.secret")
		case !sent || subtle.ConstantTimeCompare([]byte(token), []byte(a.options.Secret)) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized, "profiles require the cluster secret: send it as a bearer token")
		default:
			profile.ServeHTTP(w, r)
		}
	})
}

// unsaid logs errors of metrics except network errors: when a client disconnects, one would be
// logged for every remaining metric family.
type unsaid struct{ *log.Logger }

// Println implements promhttp.Logger.
func (u unsaid) Println(v ...any) {
	for _, one := range v {
		if err, ok := one.(error); ok {
			if _, gone := errors.AsType[net.Error](err); gone {
				return
			}
		}
	}
	u.Logger.Println(v...)
}

func (a *Admin) readyz(w http.ResponseWriter, _ *http.Request) {
	if a.options.Ready == nil {
		answer(w, http.StatusOK, "ready")
		return
	}
	ready, waiting := a.options.Ready()
	switch what := strings.Join(waiting, ", "); {
	case !ready:
		answer(w, http.StatusServiceUnavailable, "waiting for "+what)
	case what != "":
		answer(w, http.StatusOK, "ready, without "+what)
	default:
		answer(w, http.StatusOK, "ready")
	}
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have disconnected
}
