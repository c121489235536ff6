package events

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// missedReports is the number of missed reports after which a node's heartbeat is stale.
const missedReports = 3

// Heartbeats sends an event when a node's report is older than missedReports times the interval that
// the report names, and another when the node reports again. It measures the age by its own clock
// since it received the report. It is safe for concurrent use.
type Heartbeats struct {
	publish func(Event)
	wake    chan struct{}

	mu    sync.Mutex
	nodes map[fleet.NodeID]*heartbeat
}

// heartbeat is the state of one node.
type heartbeat struct {
	// reported is the report's own timestamp; due is when the heartbeat becomes stale.
	reported, due time.Time
	stale         bool
	// offset is how far the report was ahead of this gateway's clock when it arrived. It says something of
	// the node's clock only if live, because a listed report may be old.
	offset time.Duration
	live   bool
}

// NewHeartbeats returns Heartbeats that send events with publish. Start Run and subscribe OnBatch to the view.
func NewHeartbeats(publish func(Event)) *Heartbeats {
	return &Heartbeats{publish: publish, wake: make(chan struct{}, 1), nodes: map[fleet.NodeID]*heartbeat{}}
}

// Stale reports whether a node's heartbeat is stale.
func (h *Heartbeats) Stale(id fleet.NodeID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[id]
	return n != nil && n.stale
}

// ClockOffsets returns how far the clocks of nodes are ahead of this gateway's, as their last reports
// tell; negative if behind. The time that a report takes to arrive is subtracted too, usually a fraction
// of a second. Nodes whose last report arrived with a list are left out.
func (h *Heartbeats) ClockOffsets() map[fleet.NodeID]time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[fleet.NodeID]time.Duration{}
	for id, n := range h.nodes {
		if n.live {
			out[id] = n.offset
		}
	}
	return out
}

// OnBatch processes the reports of a batch.
func (h *Heartbeats) OnBatch(b view.Batch) {
	now := time.Now()
	h.mu.Lock()
	var resumed []Event
	if b.Relisted {
		resumed = h.relist(b.After, now)
	} else {
		for _, c := range b.Changes {
			if c.Kind == view.KindReport {
				resumed = append(resumed, h.report(fleet.NodeID(c.Key[0]), record[reports.Report](c.After), now, true)...)
			}
		}
	}
	h.mu.Unlock()
	for _, e := range resumed {
		h.publish(e)
	}
}

// relist replaces all reports. The age of a new report is unknown and counts from now. A new report
// of a node without a session is stale at once, without an event. The caller holds h.mu.
func (h *Heartbeats) relist(s *view.Snapshot, now time.Time) (resumed []Event) {
	for id := range h.nodes {
		if _, ok := s.Reports.Get(id); !ok {
			delete(h.nodes, id)
		}
	}
	for id, r := range s.Reports.All() {
		_, known := h.nodes[id]
		resumed = append(resumed, h.report(id, r, now, false)...)
		if n := h.nodes[id]; n != nil && !known {
			_, alive := s.NodeSessions.Get(id)
			n.stale = !alive
		}
	}
	return resumed
}

// report sets a node's report; nil removes it. live is true if it arrived when it was written. The caller
// holds h.mu.
func (h *Heartbeats) report(id fleet.NodeID, r *reports.Report, now time.Time, live bool) (resumed []Event) {
	n := h.nodes[id]
	if n != nil && r != nil && n.reported.Equal(r.At) { // only figures of instances changed
		return nil
	}
	wasStale := n != nil && n.stale
	if wasStale && r != nil {
		resumed = []Event{{Type: NodeHeartbeatResumed, Fields: Fields{"nodeId": id, "lastHeartbeatAt": r.At}}}
	}
	if r == nil || r.EverySeconds <= 0 { // an older agent
		delete(h.nodes, id)
		return resumed
	}
	h.nodes[id] = &heartbeat{
		reported: r.At, due: now.Add(missedReports * time.Duration(r.EverySeconds) * time.Second),
		offset: r.At.Sub(now), live: live,
	}
	if n == nil || wasStale || h.nodes[id].due.Before(n.due) {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
	return resumed
}

// Run publishes events of stale heartbeats until ctx ends.
func (h *Heartbeats) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-timer.C:
		}
		timer.Reset(h.check(time.Now()))
	}
}

// longestSleep is how long Run sleeps when no heartbeat can become stale.
const longestSleep = time.Hour

// check publishes the events of heartbeats that are stale now, and returns the time until the next
// one may be.
func (h *Heartbeats) check(now time.Time) time.Duration {
	h.mu.Lock()
	next := longestSleep
	var stale []Event
	for id, n := range h.nodes {
		switch {
		case n.stale:
		case !now.Before(n.due):
			n.stale = true
			stale = append(stale, Event{Type: NodeHeartbeatStale, Fields: Fields{"nodeId": id, "missedPongs": missedReports, "lastHeartbeatAt": n.reported}})
		default:
			next = min(next, n.due.Sub(now))
		}
	}
	h.mu.Unlock()
	for _, e := range stale {
		h.publish(e)
	}
	return next
}
