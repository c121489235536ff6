package apigateway

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestHowTheFleetDidIsKeptByEachGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("GET", "/api/v1/overview/timeseries?buckets=12", nil).want(200).is("windowMs", 3600000).is("bucketWidthMs", 300000).is("buckets", 12).
		is("series.players.11", 0).is("series.instances.11", 0).is("series.onlineNodes.11", 0).is("series.players.10", nil)
	now := time.Now()
	s.gateway.past.Add(now.Add(time.Hour), 7, 3, 2) // from a clock that is ahead: not read yet
	if r := s.do("GET", "/api/v1/overview/timeseries", nil).want(200); r.field("sinceMs") == nil {
		t.Errorf("%s", r.raw)
	}
	s.do("GET", "/api/v1/overview/timeseries?window=2h", nil).want(400).naming("window must be 15m, 1h, 6h or 24h")
	s.do("GET", "/api/v1/overview/timeseries?buckets=few", nil).want(400).naming("buckets")
	s.as("").do("GET", "/api/v1/overview/timeseries", nil).want(401)
}

func TestHowANodeAndItsInstancesDidIsAskedOfTheirAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	s.loseNode("node-2")
	s.group("lobby", nil)
	first, second := s.start("lobby"), s.start("lobby")
	s.do("GET", "/api/v1/services/lobby-1/metrics/timeseries", nil).want(200).is("sinceMs", nil).is("series.tps1m.0", nil).is("buckets", 60)
	s.status(first, "node-1", fleet.Status{State: fleet.Online})
	s.status(second, "node-1", fleet.Status{State: fleet.Online})
	agent.mu.Lock()
	agent.more = func(w http.ResponseWriter, r *http.Request) {
		var ring *series.Ring
		switch r.URL.Path {
		case "/v1/series":
			ring = series.New("cpuUsage", "usedMemoryMb", "instanceCount")
			ring.Add(time.Now(), 0.5, 1024, 2)
		case "/v1/instances/" + string(first) + "/series":
			ring = series.New("tps1m", "msptAvg", "heapUsedMb", "playerCount")
			ring.Add(time.Now(), 19.5, 40, 512, 3)
		default:
			http.NotFound(w, r)
			return
		}
		window, err := series.ParseWindow(r.URL.Query().Get("window"), r.URL.Query().Get("buckets"))
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(ring.Read(time.Now(), window))
	}
	agent.mu.Unlock()
	s.do("GET", "/api/v1/nodes/node-1/metrics/timeseries?window=24h&buckets=500", nil).want(200).is("windowMs", 86400000).is("buckets", 360).
		is("series.cpuUsage.359", 0.5).is("series.usedMemoryMb.359", 1024).is("series.instanceCount.359", 2).is("series.cpuUsage.0", nil)
	for _, path := range []string{"/api/v1/services/lobby-1", "/api/v1/instances/" + string(first)} {
		s.do("GET", path+"/metrics/timeseries?window=15m&buckets=10", nil).want(200).is("series.tps1m.9", 19.5).is("series.heapUsedMb.9", 512).
			is("series.msptAvg.9", 40).is("series.playerCount.9", 3).is("series.usedCpu.9", nil)
	}
	s.do("GET", "/api/v1/services/lobby-2/metrics/timeseries", nil).want(200).is("sinceMs", nil).is("series.playerCount.59", nil)
	s.do("GET", "/api/v1/nodes/node-1/metrics/timeseries?window=1d", nil).want(400)
	s.do("GET", "/api/v1/nodes/node-2/metrics/timeseries", nil).want(503)
	s.do("GET", "/api/v1/nodes/node-3/metrics/timeseries", nil).want(404)
	s.do("GET", "/api/v1/services/lobby-9/metrics/timeseries", nil).want(404)
}

func TestTheSummaryCountsWhatThereIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.start("lobby")
	s.commit(store.Create(keys.Crash("c1"), reports.Crash{ID: "c1"}))
	s.do("GET", "/api/v1/metrics/summary", nil).want(200).is("nodes", 1).is("instances", 1).is("players", 0).is("groups", 1).is("crashes", 1)
}
