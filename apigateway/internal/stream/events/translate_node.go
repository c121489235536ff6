package events

import (
	"slices"
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// session creates the events of a node that connected or disconnected. If the record's creation
// revision changed, the node did both.
func (t *translator) session(c view.Change) {
	if c.Key[0] != "node" {
		return
	}
	node := c.Key[1]
	before, after := record[fleet.NodeSession](c.Before), record[fleet.NodeSession](c.After)
	if before != nil && after != nil && before.CreateRev == after.CreateRev {
		return
	}
	if before != nil {
		t.store(Event{Type: NodeDisconnected, Fields: Fields{
			"nodeId": node, "sessionId": sessionID(before), "reason": "SESSION_ENDED", "timestamp": t.arrivedAt(),
		}})
	}
	if after != nil {
		t.store(Event{Type: NodeConnected, Fields: Fields{
			"nodeId": node, "sessionId": sessionID(after), "timestamp": after.StartedAt,
		}})
	}
}

func sessionID(s *fleet.NodeSession) string { return strconv.FormatInt(s.CreateRev, 10) }

// report creates the live events of a node's report: its usage, its cache if the size changed, and
// groups whose players changed.
func (t *translator) report(c view.Change) {
	id := fleet.NodeID(c.Key[0])
	r := record[reports.Report](c.After)
	moved := t.totals.report(id, r)
	slices.Sort(moved)
	for _, g := range slices.Compact(moved) {
		t.live = append(t.live, aggregates(g, t.totals.Of(g)))
	}
	if r == nil {
		return
	}
	if before := record[reports.Report](c.Before); before != nil && before.CacheBytes != r.CacheBytes || before == nil && r.CacheBytes != 0 {
		t.live = append(t.live, Event{Type: NodeCacheStatus, Fields: Fields{
			"nodeId": id, "totalSizeBytes": r.CacheBytes, "timestamp": r.At,
		}})
	}
	if before := record[reports.Report](c.Before); before != nil && before.At.Equal(r.At) { // only figures of instances changed
		return
	}
	var total int
	if n, ok := t.after.Nodes.Get(id); ok {
		total = n.Host.TotalMiB
	}
	t.live = append(t.live, Event{Type: NodeStatus, Fields: Fields{
		"nodeId": id, "cpuUsage": r.CPU, "usedMemoryMb": r.MemoryMiB, "totalMemoryMb": total, "lastHeartbeatAt": r.At,
	}})
}

func aggregates(g fleet.GroupName, total Total) Event {
	return Event{Type: GroupAggregatesUpdated, Group: g, Fields: Fields{
		"groupName": g, "runningInstances": total.Running, "totalPlayers": total.Players,
	}}
}
