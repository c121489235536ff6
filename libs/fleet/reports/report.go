// Package reports holds what agents report: how busy a node is, the figures of its instances,
// and crashes.
package reports

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// MaxWarm bounds Report.Warm, and MaxStatic bounds Report.StaticBytes.
const (
	MaxWarm   = 32
	MaxStatic = 256
)

// Report is a node's usage and the live figures of its instances. The agent writes it when
// something in it has changed noticeably.
type Report struct {
	record.Rev
	Node fleet.NodeID `json:"node"`
	// CPU is the CPU usage of the host, 0 to 1. MemoryMiB and DiskFreeMiB are those of the host.
	CPU         float64 `json:"cpu"`
	MemoryMiB   int     `json:"memoryMiB"`
	DiskFreeMiB int     `json:"diskFreeMiB"`
	DiskMiB     int     `json:"diskMiB"`
	// Instances are part of the record only if Parted is false, as in records of older agents.
	// Otherwise they are in the node's ReportParts, and a view adds them.
	Instances map[fleet.InstanceID]InstanceReport `json:"instances,omitempty"`
	Parted    bool                                `json:"parted,omitempty"`
	// Warm are digests of template versions in the node's cache (except files that other layers
	// replaced), the most recently used ones, sorted, at most MaxWarm.
	Warm []string `json:"warm,omitempty"`
	// StaticBytes maps GROUP/NAME of static instances to the last measured size of their
	// directory, at most MaxStatic, the largest ones. It is nil for older agents.
	StaticBytes map[string]int64 `json:"staticBytes,omitempty"`
	// CacheBytes is the size of the node's cache. It is also 0 for older agents.
	CacheBytes int64     `json:"cacheBytes,omitempty"`
	At         time.Time `json:"at"`
	// EverySeconds is the maximum interval between reports, whether or not anything changed. It is
	// 0 for older agents, which write only changes.
	EverySeconds int `json:"everySeconds,omitempty"`
}

// InstanceReport contains the live figures of one instance.
type InstanceReport struct {
	Players    int `json:"players,omitempty"`
	MaxPlayers int `json:"maxPlayers,omitempty"`
	// PlayersKnown is true if the instance reported its players or answered a query.
	PlayersKnown bool `json:"playersKnown,omitempty"`
	// HeartbeatAt is when the instance last sent a heartbeat. Zero means never.
	HeartbeatAt time.Time `json:"heartbeatAt,omitzero"`
	// TPS is the ticks per second reported by the instance, 0 if it never did.
	TPS float64 `json:"tps,omitempty"`
	// Usage is the instance's resource usage as measured by the agent.
	Usage Usage `json:"usage,omitzero"`
}

// InstanceSaid is what an instance reports about itself. Fields it does not report are nil.
type InstanceSaid struct {
	Players, MaxPlayers *int
	TPS                 *float64
	At                  time.Time
}

// With returns the report updated with what the instance said.
func (r InstanceReport) With(s InstanceSaid) InstanceReport {
	if s.Players != nil {
		r.Players, r.PlayersKnown = *s.Players, true
	}
	if s.MaxPlayers != nil {
		r.MaxPlayers = *s.MaxPlayers
	}
	if s.TPS != nil {
		r.TPS = *s.TPS
	}
	if s.At.After(r.HeartbeatAt) {
		r.HeartbeatAt = s.At
	}
	return r
}
