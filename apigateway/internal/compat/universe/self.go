package universe

import (
	"cmp"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Self describes the gateway as a node of the dialect.
type Self struct {
	Version   string
	StartedAt time.Time
	// Address returns the listen address as host:port.
	Address func() string
	// APIURL is the URL at which others reach the gateway; may be empty.
	APIURL string
	// Debug is true if it logs at debug level.
	Debug bool
}

// selfRoutes are the routes about the gateway that answers.
func (a *API) selfRoutes() []server.Route {
	measured := server.Needs(auth.MetricsView)
	if a.cfg.MetricsPublic {
		measured = server.Public
	}
	return []server.Route{
		server.Get("/api/node", server.Needs(auth.NodesView), a.getSelf),
		server.Get("/api/node/config", server.Needs(auth.SystemSettings), a.getSelfConfig),
		server.Post("/api/node/reload", server.Needs(auth.SystemSettings), a.reload),
		server.Get("/api/metrics", measured, a.metrics),
	}
}

// node returns the node of the gateway's host, or nil if it is not registered.
func (a *API) node() *fleet.Node {
	n, _ := a.snapshot().Nodes.Get(fleet.NodeID(a.cfg.NodeID))
	return n
}

// listened returns the listen address.
func (a *API) listened() (host string, port int) {
	host, text, _ := net.SplitHostPort(a.cfg.Self.Address())
	port, _ = strconv.Atoi(text)
	return host, port
}

// system has the dialect's figures of a node's process, in bytes.
type system struct {
	AvailableProcessors int     `json:"availableProcessors"`
	SystemLoadAverage   float64 `json:"systemLoadAverage"` // of a minute; -1 when not known
	FreeMemory          uint64  `json:"freeMemory"`
	TotalMemory         uint64  `json:"totalMemory"`
	MaxMemory           uint64  `json:"maxMemory"`
}

func systemNow() system {
	held := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(held)
	bytes := func(n int) uint64 { return held[n].Value.Uint64() }
	out := system{
		AvailableProcessors: runtime.GOMAXPROCS(0), SystemLoadAverage: -1,
		TotalMemory: bytes(0) - bytes(1), FreeMemory: bytes(2) + bytes(3),
	}
	limit := debug.SetMemoryLimit(-1)
	var host syscall.Sysinfo_t
	if syscall.Sysinfo(&host) == nil {
		out.SystemLoadAverage = math.Round(float64(host.Loads[0])/(1<<16)*100) / 100
		out.MaxMemory = uint64(host.Totalram) * uint64(host.Unit)
	}
	if limit > 0 && limit < math.MaxInt64 && (out.MaxMemory == 0 || uint64(limit) < out.MaxMemory) {
		out.MaxMemory = uint64(limit)
	}
	return out
}

func (a *API) getSelf(c *gin.Context) {
	host, port := a.listened()
	agent := 0
	if n := a.node(); n != nil {
		agent = agentPort(n)
	}
	now, uptime := systemNow(), a.cfg.Now().Sub(a.cfg.Self.StartedAt).Milliseconds()
	c.JSON(http.StatusOK, gin.H{
		"id": a.cfg.NodeID, "clusterName": a.cfg.ClusterName, "version": a.cfg.Self.Version, "master": true,
		"address": host, "port": agent, "apiPort": port, "uptimeMs": uptime, "system": now,
		// Aliases from the dialect's documentation:
		"nodeId": a.cfg.NodeID, "uptime": uptime, "systemStats": now,
	})
}

// secretly matches names of variables with secret values.
var secretly = regexp.MustCompile(`(?i)pass|secret|token|key|credential`)

// masked replaces the values of secret variables with ***.
func masked(variables map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range variables {
		if secretly.MatchString(name) && value != "" {
			value = "***"
		}
		out[name] = value
	}
	return out
}

// updateSource is a template source in the dialect's node configuration.
type updateSource struct {
	URL           string  `json:"url"`
	TargetPath    string  `json:"targetPath"`
	HashURL       *string `json:"hashUrl"`
	IntervalMs    int64   `json:"intervalMs"`
	Enabled       bool    `json:"enabled"`
	SyncToStorage *string `json:"syncToStorage"`
}

// getSelfConfig returns the settings in effect that the dialect has.
func (a *API) getSelfConfig(c *gin.Context) {
	sources, err := a.cfg.Sources.List(c.Request.Context())
	if err != nil {
		fail(c, err)
		return
	}
	updates := []updateSource{}
	for _, s := range sources {
		if s.Kind == content.SourceDirectory {
			continue
		}
		target := "templates"
		switch {
		case s.Template != content.TemplateRef{}:
			target += "/" + s.Template.String()
		case s.Group != "":
			target += "/" + s.Group
		}
		update := updateSource{
			URL: cmp.Or(s.URL, s.Program), TargetPath: target, IntervalMs: s.Interval().Milliseconds(), Enabled: !s.Paused,
		}
		if s.HashURL != "" {
			update.HashURL = &s.HashURL
		}
		updates = append(updates, update)
	}
	host, apiPort := a.listened()
	var (
		agent int
		room  fleet.Resources
		own   map[string]string
	)
	if n := a.node(); n != nil {
		d, _ := a.snapshot().NodesDesired.Get(n.ID)
		room, _ = n.RoomUnder(d).Of(n.Capacity)
		agent, own = agentPort(n), n.Variables
	}
	public := host
	if u, err := url.Parse(a.cfg.Self.APIURL); err == nil && u.Hostname() != "" {
		public = u.Hostname()
	}
	c.JSON(http.StatusOK, gin.H{
		"address": host, "port": agent, "apiPort": apiPort, "nodeId": a.cfg.NodeID, "clusterName": a.cfg.ClusterName,
		"isMasterNode": true, "masterAddress": public, "masterPort": agent, "masterApiPort": apiPort, "debug": a.cfg.Self.Debug,
		"maxRamMB": room.MemoryMiB, "maxCpu": room.CPU, "updateSources": updates, "nodeSpecificVariables": masked(own),
		"bindAddress": host, "publicAddress": public,
	})
}

// reload syncs everything that comes from outside the cluster and returns what has changed.
func (a *API) reload(c *gin.Context) {
	server.Unhurried(c)
	out, err := a.cfg.Sources.Reload(c.Request.Context(), a.cfg.By(c))
	if err != nil {
		fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{
		"message": out.Message(), "configurations": out.Groups, "templates": out.Templates, "problems": append([]string{}, out.Problems...),
	})
}

// metrics returns the process's metrics in Prometheus format.
func (a *API) metrics(c *gin.Context) {
	if a.cfg.Metrics == nil {
		c.Data(http.StatusServiceUnavailable, "text/plain; charset=utf-8", []byte("this gateway keeps no metrics\n"))
		return
	}
	promhttp.HandlerFor(a.cfg.Metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(c.Writer, c.Request)
}
