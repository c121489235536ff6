package workload

import (
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// maxWorlds and maxPings limit the stored entries of each kind.
	maxWorlds = 100
	maxPings  = 500
)

// serverMetrics are the metrics that a server reports.
type serverMetrics struct {
	TPS1m           float64 `json:"tps1m"`
	TPS5m           float64 `json:"tps5m"`
	TPS15m          float64 `json:"tps15m"`
	MSPTAvg         float64 `json:"msptAvg"`
	HeapUsedMb      float64 `json:"heapUsedMb"`
	HeapMaxMb       float64 `json:"heapMaxMb"`
	HeapCommittedMb float64 `json:"heapCommittedMb"`
	GCCollections   int64   `json:"gcCollections"`
	GCTimeMs        int64   `json:"gcTimeMs"`
	ThreadCount     int     `json:"threadCount"`
	DaemonThreads   int     `json:"daemonThreadCount"`
	PlayerCount     int     `json:"playerCount"`
	MaxPlayers      int     `json:"maxPlayers"`
	WorldCount      int     `json:"worldCount"`
	TotalEntities   int     `json:"totalEntities"`
	TotalChunks     int     `json:"totalChunks"`
	Worlds          []world `json:"worlds"`
	ServerVersion   string  `json:"serverVersion"`
	PluginCount     int     `json:"pluginCount"`
	UptimeMs        int64   `json:"uptimeMs"`
}

type world struct {
	Name        string `json:"name"`
	Environment string `json:"environment"`
	EntityCount int    `json:"entityCount"`
	ChunkCount  int    `json:"chunkCount"`
	PlayerCount int    `json:"playerCount"`
}

// proxyMetrics are the metrics that a proxy reports.
type proxyMetrics struct {
	MemoryUsedMb float64 `json:"proxyMemoryUsedMb"`
	MemoryMaxMb  float64 `json:"proxyMemoryMaxMb"`
	UptimeMs     int64   `json:"proxyUptimeMs"`
	TotalPlayers int     `json:"totalNetworkPlayers"`
	Pings        []ping  `json:"playerPings"`
}

type ping struct {
	UUID     string `json:"uuid"`
	Username string `json:"username"`
	Ping     int    `json:"ping"`
}

// serverMetrics accepts a server's metrics. Its players and ticks count like those of a heartbeat.
func (a *API) serverMetrics(c *gin.Context) {
	var b serverMetrics
	if !bind(c, &b) {
		return
	}
	for field, value := range map[string]float64{"playerCount": float64(b.PlayerCount), "maxPlayers": float64(b.MaxPlayers), "tps1m": b.TPS1m} {
		if value < 0 {
			server.Fail(c, errs.Field(field, "must not be negative, is %v", value))
			return
		}
	}
	b.Worlds = append([]world{}, b.Worlds[:min(len(b.Worlds), maxWorlds)]...)
	a.measured(c, client.Heartbeat{Players: &b.PlayerCount, MaxPlayers: &b.MaxPlayers, TPS: &b.TPS1m}, b, false)
}

// proxyMetrics accepts a proxy's metrics.
func (a *API) proxyMetrics(c *gin.Context) {
	var b proxyMetrics
	if !bind(c, &b) {
		return
	}
	b.Pings = append([]ping{}, b.Pings[:min(len(b.Pings), maxPings)]...)
	a.measured(c, client.Heartbeat{}, b, true)
}

func (a *API) measured(c *gin.Context, h client.Heartbeat, figures any, proxy bool) {
	text, err := json.Marshal(figures)
	if err != nil {
		server.Fail(c, errs.WrapAs(errs.Internal, "workload.measured", err))
		return
	}
	h.Measured = &client.Measured{Proxy: proxy, Figures: text}
	if !a.handOver(c, h) {
		return
	}
	if !proxy {
		a.tellMetrics(c, text)
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
}
