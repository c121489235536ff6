package store

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/store/sharding"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// figures are a replica's counters. The zero value counts nothing.
type figures struct {
	takeovers *prometheus.CounterVec
	refused   counter
}

// Export creates the metrics of a replica that claims shards: owned_shards, live_replicas,
// takeovers_total by cause, and fenced_total, which counts every transaction refused by a fence of
// the replica's ownership. Call it once before Run, then check m.Err.
func (r *Replica) Export(m *telemetry.Metrics) {
	m.GaugeFunc("owned", "shards", "Shards this replica decides about.", func() float64 { return float64(r.Owned().Count()) })
	m.GaugeFunc("live", "replicas", "Replicas of this service with a session; 0 while this one has none.",
		func() float64 { return float64(r.alive.Load()) })
	r.takeovers = m.Counter("takeovers", "Shards taken over, by cause: free (no replica held it), handed (given up by a living replica), "+
		"ended (the holder's session ended) or unclaimed (its owner lives but does not claim it).", "cause")
	for _, cause := range sharding.Takeovers {
		r.takeovers.WithLabelValues(string(cause))
	}
	r.refused = m.Counter("fenced", "Transactions refused because a shard was no longer owned.").WithLabelValues()
}

func (f *figures) countTakeover(cause sharding.Takeover) {
	if f.takeovers != nil {
		f.takeovers.WithLabelValues(string(cause)).Inc()
	}
}
