package system

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// etcdDiagnosis is the state of etcd as this gateway sees it.
type etcdDiagnosis struct {
	Endpoints []etcdEndpoint `json:"endpoints"`
	// CompactedRevision is the revision up to which the history is gone, HistoryRevisions the number of
	// revisions since. Both are null if they are not known.
	CompactedRevision *int64 `json:"compactedRevision"`
	HistoryRevisions  *int64 `json:"historyRevisions"`
}

// etcdEndpoint is the answer of one endpoint. If OK is false, the fields after Error are zero, except the
// latency.
type etcdEndpoint struct {
	Endpoint string  `json:"endpoint"`
	OK       bool    `json:"ok"`
	Error    *string `json:"error"`
	Version  string  `json:"version"`

	DBSizeBytes      int64 `json:"dbSizeBytes"`
	DBSizeInUseBytes int64 `json:"dbSizeInUseBytes"`
	// QuotaBytes is null if the member does not report it.
	QuotaBytes *int64   `json:"quotaBytes"`
	Revision   int64    `json:"revision"`
	Leader     bool     `json:"leader"`
	RaftTerm   uint64   `json:"raftTerm"`
	Alarms     []string `json:"alarms"`
	LatencyMs  float64  `json:"latencyMs"`
}

// clockOffset is how far the clock of a node is ahead of this gateway's.
type clockOffset struct {
	NodeID   fleet.NodeID `json:"nodeId"`
	OffsetMs int64        `json:"offsetMs"`
}

// diagnoseEtcd asks etcd. It takes little more than two seconds, however many endpoints hang.
func diagnoseEtcd(ctx context.Context, c *store.Client) etcdDiagnosis {
	out := etcdDiagnosis{Endpoints: []etcdEndpoint{}}
	var (
		asked     sync.WaitGroup
		compacted int64
		unknown   error
	)
	asked.Go(func() { compacted, unknown = c.CompactedRevision(ctx) })
	statuses := c.EndpointStatuses(ctx)
	asked.Wait()
	var latest int64
	for _, s := range statuses {
		latest = max(latest, s.Revision)
		out.Endpoints = append(out.Endpoints, etcdEndpointOf(s))
	}
	if unknown == nil && latest > 0 {
		since := max(latest-compacted, 0)
		out.CompactedRevision, out.HistoryRevisions = &compacted, &since
	}
	return out
}

func etcdEndpointOf(s store.EndpointStatus) etcdEndpoint {
	out := etcdEndpoint{
		Endpoint: s.Endpoint, OK: s.Err == nil, Version: s.Version, DBSizeBytes: s.DBSize, DBSizeInUseBytes: s.DBSizeInUse, QuotaBytes: resource.OrNull(s.Quota),
		Revision: s.Revision, Leader: s.Leader, RaftTerm: s.RaftTerm, Alarms: *resource.List(s.Alarms), LatencyMs: float64(s.Latency) / float64(time.Millisecond),
	}
	if s.Err != nil {
		text := errs.MessageOf(s.Err)
		out.Error = &text
	}
	return out
}

// clocks returns the known offsets, by node.
func (a *API) clocks() []clockOffset {
	offsets := a.cfg.ClockOffsets()
	out := make([]clockOffset, 0, min(len(offsets), maxDiagnosed))
	for _, id := range slices.Sorted(maps.Keys(offsets))[:min(len(offsets), maxDiagnosed)] {
		out = append(out, clockOffset{id, offsets[id].Milliseconds()})
	}
	return out
}
