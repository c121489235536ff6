package nodes

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// nodeFields are the writable fields of a node. The agent's settings hold until a field is written.
type nodeFields struct {
	Labels *resource.Values `json:"labels,omitempty"`
	Room   *nodeRoom        `json:"room,omitempty"`
}

// nodeRoom bounds what instances may reserve on a node. Missing fields count as 0.
type nodeRoom struct {
	Reserved     reservation `json:"reserved"`
	CPUFactor    float64     `json:"cpuFactor"` // 0 means 1
	MaxInstances int         `json:"maxInstances"`
}

// reservation is what the host keeps for itself.
type reservation struct {
	MemoryMb          int `json:"memoryMb"`
	CPU               int `json:"cpu"` // hundredths of a core
	DiskReservationMb int `json:"diskReservationMb"`
}

// nodeBody is the body of a request. It accepts the read-only fields so that a client can send back
// what it read.
type nodeBody struct {
	nodeFields
	nodeReadOnly
}

type nodeReadOnly struct {
	ID             json.RawMessage `json:"id"`
	NodeID         json.RawMessage `json:"nodeId"`
	Address        json.RawMessage `json:"address"`
	Type           json.RawMessage `json:"type"`
	Status         json.RawMessage `json:"status"`
	Cordoned       json.RawMessage `json:"cordoned"`
	CPUUsage       json.RawMessage `json:"cpuUsage"`
	TotalMemoryMb  json.RawMessage `json:"totalMemoryMb"`
	UsedMemoryMb   json.RawMessage `json:"usedMemoryMb"`
	SleepingMemory json.RawMessage `json:"sleepingMemoryMb"`
	FreeDiskMb     json.RawMessage `json:"freeDiskMb"`
	TotalDiskMb    json.RawMessage `json:"totalDiskMb"`
	InstanceCount  json.RawMessage `json:"instanceCount"`
	ConnectedSince json.RawMessage `json:"connectedSince"`
	LastHeartbeat  json.RawMessage `json:"lastHeartbeat"`
	FirstSeen      json.RawMessage `json:"firstSeen"`
	LastSeen       json.RawMessage `json:"lastSeen"`
	HostInfo       json.RawMessage `json:"hostInfo"`
	Version        json.RawMessage `json:"version"`
	TotalCPU       json.RawMessage `json:"totalCpu"`
	Capacity       json.RawMessage `json:"capacity"`
	Effective      json.RawMessage `json:"effectiveCapacity"`
	Reserved       json.RawMessage `json:"reserved"`
	WarmTemplates  json.RawMessage `json:"warmTemplates"`
	Message        json.RawMessage `json:"message"`
	Runtimes       json.RawMessage `json:"runtimes"`
	Limits         json.RawMessage `json:"limits"`
	Tenants        json.RawMessage `json:"tenants"`
	Policy         json.RawMessage `json:"policy"`
	Instances      json.RawMessage `json:"instances"`
}

// patchNode applies a merge patch (RFC 7396) to the labels and the room in force. null for labels
// or room restores the agent's settings.
func (a *API) patchNode(c *gin.Context) {
	raw, err := io.ReadAll(c.Request.Body)
	if err != nil {
		server.Fail(c, errs.WrapAs(errs.TooLarge, "rest.patchNode", err))
		return
	}
	var b nodeBody
	if err := wire.DecodeJSON(bytes.NewReader(raw), 0, &b); err != nil { // checks types and unknown fields
		server.Fail(c, err)
		return
	}
	patch, err := resource.DecodePatch(raw, "labels", "room")
	if err != nil {
		server.Fail(c, err)
		return
	}
	w := nodeops.NodeWrite{
		Node: fleet.NodeID(c.Param("id")), DryRun: server.DryRun(c),
		Make: func(n *fleet.Node, present nodeops.NodeWishes) (nodeops.NodeWishes, error) {
			return patchWishes(n, present, patch)
		},
	}
	if w.IfMatch, err = server.IfMatch(c); err != nil {
		server.Fail(c, err)
		return
	}
	before, after, err := a.cfg.Operations.WriteNode(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s := a.cfg.Operations.Snapshot()
	n, ok := s.Nodes.Get(w.Node)
	switch {
	case !ok:
		server.Fail(c, errs.New(errs.NotFound, "the node was removed"))
	case w.DryRun:
		c.JSON(http.StatusOK, resource.DryRun("node", string(n.ID), true, resource.Differences(nodeFieldsOf(n, before), nodeFieldsOf(n, after))))
	default:
		a.sendNode(c, s, n)
	}
}

// patchWishes applies a patch to the operator's wishes. Values that already hold are not recorded
// as wishes, so a client can send back what it read.
func patchWishes(n *fleet.Node, present nodeops.NodeWishes, patch map[string]any) (nodeops.NodeWishes, error) {
	now := nodeFieldsOf(n, present)
	merged := resource.AsMap(now)
	resource.MergePatch(merged, patch)
	b, err := json.Marshal(merged)
	if err != nil {
		return present, errs.WrapAs(errs.Internal, "rest.wishes", err)
	}
	var wanted nodeFields
	if err := json.Unmarshal(b, &wanted); err != nil {
		return present, errs.WrapAs(errs.Internal, "rest.wishes", err)
	}
	out := present
	switch {
	case wanted.Labels == nil:
		out.Labels = nil
	case !maps.Equal(wanted.Labels.Given(), now.Labels.Given()):
		if out.Labels = wanted.Labels.Given(); out.Labels == nil {
			out.Labels = map[string]string{}
		}
	}
	switch {
	case wanted.Room == nil:
		out.Room = nil
	case wanted.Room.room() != now.Room.room():
		out.Room = new(wanted.Room.room())
	}
	return out, nil
}

// nodeFieldsOf returns the labels and the room of a node under wishes.
func nodeFieldsOf(n *fleet.Node, w nodeops.NodeWishes) nodeFields {
	d := &fleet.NodeDesired{Labels: w.Labels, Room: w.Room}
	return nodeFields{Labels: resource.ValuesOf(n.LabelsUnder(d)), Room: new(roomOf(n.RoomUnder(d)))}
}

// room converts the room.
func (r *nodeRoom) room() fleet.NodeRoom {
	kept := fleet.Resources{MemoryMiB: r.Reserved.MemoryMb, CPU: r.Reserved.CPU, DiskMiB: r.Reserved.DiskReservationMb}
	return fleet.NodeRoom{Reserved: kept, CPUFactor: r.CPUFactor, MaxInstances: r.MaxInstances}
}

func roomOf(r fleet.NodeRoom) nodeRoom {
	kept := reservation{MemoryMb: r.Reserved.MemoryMiB, CPU: r.Reserved.CPU, DiskReservationMb: r.Reserved.DiskMiB}
	return nodeRoom{Reserved: kept, CPUFactor: r.CPUFactor, MaxInstances: r.MaxInstances}
}
