package apigateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// settings changes what a node's agent reports in its record.
func (s *site) settings(id fleet.NodeID, labels map[string]string, room fleet.NodeRoom) {
	s.t.Helper()
	n, _ := s.view.Snapshot().Nodes.Get(id)
	next := *n
	next.Labels, next.Room = labels, room
	s.commit(store.Replace(keys.Node(id), next, n.ModRev))
}

func room(memory, cpu, disk int, factor float64, instances int) map[string]any {
	return map[string]any{
		"reserved": map[string]int{"memoryMb": memory, "cpu": cpu, "diskReservationMb": disk}, "cpuFactor": factor, "maxInstances": instances,
	}
}

func TestANodeShowsWhatItHasAndWhatOfItMayBeUsed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 400, DiskMiB: 1000})
	s.settings("node-1", map[string]string{"rack": "a"}, fleet.NodeRoom{Reserved: fleet.Resources{MemoryMiB: 1024, CPU: 100}, CPUFactor: 2, MaxInstances: 9})
	s.template("base")
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", Warm: []string{"d0", "d1"}, At: time.Now()}))
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).
		is("capacity", map[string]int{"memoryMb": 4096, "cpu": 400, "diskMb": 1000}).
		is("effectiveCapacity", map[string]int{"memoryMb": 3072, "cpu": 700, "diskMb": 1000}).
		is("room", room(1024, 100, 0, 2, 9)).is("labels", map[string]string{"rack": "a"}).is("message", "").
		is("warmTemplates", []map[string]string{{"digest": "d0"}, {"digest": "d1", "template": "default/base"}})
	s.do("GET", "/api/cluster/nodes/node-1", nil).want(200).is("capacity.maxRamMB", 3072).is("capacity.maxCpu", 700)
}

func TestANodeWithNonsenseCapacityIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: -5, CPU: 1 << 40, DiskMiB: 7})
	r := s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("effectiveCapacity", map[string]int{"memoryMb": 0, "cpu": 0, "diskMb": 7})
	r.naming("memoryMb of -5").naming("cpu of 1099511627776")
}

func TestAPatchOfANodeReplacesItsSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 400})
	s.settings("node-1", map[string]string{"rack": "a", "old": "1"}, fleet.NodeRoom{MaxInstances: 9, Reserved: fleet.Resources{CPU: 50}})
	patch := func(body string) *reply {
		t.Helper()
		return s.do("PATCH", "/api/v1/nodes/node-1", body).want(200)
	}
	patch(`{"labels":{"ssd":"","old":null}}`).is("labels", map[string]string{"rack": "a", "ssd": ""}).is("room", room(0, 50, 0, 0, 9))
	patch(`{"room":{"reserved":{"memoryMb":96},"cpuFactor":1.5}}`).is("room", room(96, 50, 0, 1.5, 9)).
		is("effectiveCapacity", map[string]int{"memoryMb": 4000, "cpu": 550, "diskMb": 0})
	patch(`{"room":{"maxInstances":null,"reserved":null}}`).is("room", room(0, 0, 0, 1.5, 0))
	s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200)
	s.do("GET", "/api/v1/nodes/node-1", nil).is("labels", map[string]string{"rack": "a", "ssd": ""}).is("cordoned", true)
	s.do("GET", "/api/cluster/nodes/node-1", nil).want(200).is("labels", map[string]string{"rack": "a", "ssd": ""}).is("capacity.maxCpu", 600)
	patch(`{"labels":{"rack":null,"ssd":null}}`).is("labels", map[string]string{})
	s.do("GET", "/api/v1/nodes/node-1", nil).is("labels", map[string]string{})
	patch(`{"labels":null,"room":null}`).is("labels", map[string]string{"rack": "a", "old": "1"}).is("room", room(0, 50, 0, 0, 9)).is("cordoned", true)
	audit := s.do("GET", "/api/v1/audit", nil).want(200)
	if n := strings.Count(audit.raw, `"node.update"`); n != 5 {
		t.Errorf("%d changes in the audit: %s", n, audit.raw)
	}
	audit.naming(`\"cpuFactor\":1.5`)
}

func TestAChangedNodeBarsWhatWasDecidedBefore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	for _, body := range []string{`{"labels":{"a":"b"}}`, `{"room":{"maxInstances":1}}`, `{"labels":null}`} {
		before := s.revision()
		s.do("PATCH", "/api/v1/nodes/node-1", body).want(200)
		if a, err := store.Get(t.Context(), s.store, keys.Alloc("node-1")); err != nil || a.ModRev <= before {
			t.Errorf("%s: a placement decided before could still be committed: %+v, %v", body, a, err)
		}
	}
}

func TestWritingBackWhatWasReadOfANodeChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 100})
	s.settings("node-1", map[string]string{"rack": "a", "an odd": "label of the agent"}, fleet.NodeRoom{CPUFactor: 1.25})
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", Warm: []string{"d1"}, At: time.Now()}))
	for n := range 2 {
		change := fmt.Sprintf(`{"labels":{"b":"%d"},"room":{"maxInstances":%d}}`, n, n+3)
		read := s.do("GET", "/api/v1/nodes/node-1", nil).want(200)
		before := s.revision()
		s.do("PATCH", "/api/v1/nodes/node-1", read.raw).want(200)
		s.do("PATCH", "/api/v1/nodes/node-1", `{}`).want(200)
		s.do("PATCH", "/api/v1/nodes/node-1?dryRun=true", read.raw).want(200).is("action", "none").is("diff", []any{})
		s.do("PATCH", "/api/v1/nodes/node-1?dryRun=true", change).want(200).is("action", "update").naming(`"field":"room"`)
		if keys := s.moved(before); len(keys) > 0 {
			t.Errorf("something was written: %v", keys)
		}
		s.do("PATCH", "/api/v1/nodes/node-1", change).want(200)
	}
}

func TestAChangeOfANodeBasedOnAnOldReadIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	tag := s.do("GET", "/api/v1/nodes/node-1", nil).want(200).header.Get("ETag")
	moved := s.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"a":"b"}}`, "If-Match", tag).want(200).header.Get("ETag")
	if got := s.do("GET", "/api/v1/nodes/node-1", nil).header.Get("ETag"); got != moved || moved == tag {
		t.Errorf("ETags %s, %s and %s", tag, moved, got)
	}
	s.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"a":"c"}}`, "If-Match", tag).want(412)
	s.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"a":"c"}}`, "If-Match", "now").want(400)
	s.settings("node-1", map[string]string{"z": "1"}, fleet.NodeRoom{})
	s.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"a":"c"}}`, "If-Match", moved).want(412)
	s.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"a":"c"}}`).want(200).is("labels.a", "c")
}

func TestABadPatchOfANodeIsRefusedByNameAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	s.loseNode("node-2")
	s.do("DELETE", "/api/v1/nodes/node-2", nil).want(204)
	before := s.revision()
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"malformed JSON", `{"labels":`, 400, "JSON"},
		{"null", `null`, 400, "null"},
		{"an unknown field", `{"colour":"red"}`, 400, "colour"},
		{"an unknown field of the room", `{"room":{"beds":2}}`, 400, "room.beds is not"},
		{"an unknown field of the reservation", `{"room":{"reserved":{"gpu":1}}}`, 400, "room.reserved.gpu is not"},
		{"a label given twice", `{"labels":{"a":"b","a":"c"}}`, 400, "labels.a is given twice"},
		{"a list", `[]`, 400, "object"},
		{"a room that is a word", `{"room":"much"}`, 400, "room"},
		{"a number for a label", `{"labels":{"a":1}}`, 400, "labels"},
		{"a list for labels", `{"labels":["a"]}`, 400, "labels"},
		{"a word for a factor", `{"room":{"cpuFactor":"twice"}}`, 400, "cpuFactor"},
		{"half an instance", `{"room":{"maxInstances":0.5}}`, 400, "maxInstances"},
		{"a label's key with a blank", `{"labels":{"a b":"c"}}`, 422, "labels"},
		{"a label without a key", `{"labels":{"":"c"}}`, 422, "labels"},
		{"a label's value with a quote", `{"labels":{"a":"\""}}`, 422, "labels"},
		{"a negative factor", `{"room":{"cpuFactor":-1}}`, 422, "room.cpuFactor"},
		{"a factor past all bounds", `{"room":{"cpuFactor":1e9}}`, 422, "room.cpuFactor"},
		{"fewer than no instances", `{"room":{"maxInstances":-1}}`, 422, "room.maxInstances"},
		{"a negative reservation", `{"room":{"reserved":{"memoryMb":-1}}}`, 422, "room.reserved.memoryMb"},
		{"a reservation past all bounds", `{"room":{"reserved":{"diskReservationMb":2000000000}}}`, 422, "room.reserved.diskReservationMb"},
		{"two mistakes, both told", `{"labels":{"a b":"c"},"room":{"cpuFactor":-1}}`, 422, "room.cpuFactor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *s
			sub.t = t
			sub.do("PATCH", "/api/v1/nodes/node-1", c.body).want(c.status).naming(c.says)
		})
	}
	s.do("PATCH", "/api/v1/nodes/nope", `{"labels":{"a":"b"}}`).want(404)
	s.do("PATCH", "/api/v1/nodes/node-2", `{"labels":{"a":"b"}}`).want(409).naming("being deleted")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
}

func TestANodeIsShownWithItsHostsMemoryAndWhatIsKnownOfIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("totalMemoryMb", 4096).is("hostInfo.cpuPhysicalCores", nil).is("hostInfo.cpuMaxFreqHz", nil).is("hostInfo.javaVersion", "")
	n, _ := s.view.Snapshot().Nodes.Get("node-1")
	next := *n
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("policy", nil) // an older agent
	next.Policy = &policy.Policy{Users: []string{"games"}, ContainerUsers: []string{"0"}, Volumes: []string{"/srv"}, Networks: []string{"host"}, Images: []string{"debian"}}
	next.Host = fleet.HostInfo{TotalMiB: 65536, PhysicalCores: 8, MaxFreqHz: 4_200_000_000}
	s.commit(store.Replace(keys.Node("node-1"), next, n.ModRev))
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("totalMemoryMb", 65536).is("capacity.memoryMb", 4096).
		is("hostInfo.cpuPhysicalCores", 8).is("hostInfo.cpuMaxFreqHz", 4_200_000_000).
		is("policy.users.0", "games").is("policy.containerUsers.0", "0").is("policy.volumes.0", "/srv").is("policy.networks.0", "host").is("policy.images.0", "debian")
}

func TestACordonTellsSinceWhichRevisionItHolds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	before := s.revision()
	first := s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200).is("nodeId", "node-1").is("status", "CORDONED")
	if rev, _ := first.field("revision").(float64); int64(rev) <= before || int64(rev) > s.revision() {
		t.Errorf("%s after revision %d", first.raw, before)
	}
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200).is("nodeId", "node-1").is("status", "ONLINE")
}

func TestANodeWhoseReportsAreOverdueIsUnreachableUntilItReports(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	said := s.stream("/api/v1/events/stream?types=NODE_HEARTBEAT_STALE,NODE_HEARTBEAT_RESUMED")
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "ONLINE")
	key, first := keys.Report("node-1"), time.Now().UTC()
	rev := s.commit(store.Create(key, reports.Report{Node: "node-1", At: first, EverySeconds: 1}))
	becomes := func(status string) {
		t.Helper()
		await.That(t, "a node that is "+status, func() string {
			r := s.do("GET", "/api/v1/nodes/node-1", nil).want(200)
			return await.Unless(r.field("status") == status, "%s", r.raw)
		})
	}
	becomes("UNREACHABLE")
	comes(t, said, `"missedPongs":3,"nodeId":"node-1","type":"NODE_HEARTBEAT_STALE"`, "NODE_HEARTBEAT_RESUMED")
	s.do("GET", "/api/v1/nodes?state=unreachable", nil).want(200).is("total", 1).is("data.0.type", "CONNECTED")
	s.commit(store.Replace(key, reports.Report{Node: "node-1", At: first.Add(time.Minute), EverySeconds: 30}, rev))
	becomes("ONLINE")
	comes(t, said, `"nodeId":"node-1","type":"NODE_HEARTBEAT_RESUMED"`)
	if n := strings.Count(said.String(), "NODE_HEARTBEAT_STALE"); n != 1 {
		t.Errorf("told %d times: %s", n, said)
	}
}
