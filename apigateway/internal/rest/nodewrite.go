package rest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// nodeFields are what may be written of a node: what the agent's settings say until
// somebody writes it here.
type nodeFields struct {
	Labels *values   `json:"labels,omitempty"`
	Room   *nodeRoom `json:"room,omitempty"`
}

// nodeRoom says how much of a node's capacity instances may reserve; what is absent is 0.
type nodeRoom struct {
	Reserved     *kept    `json:"reserved,omitempty"`
	CPUFactor    *float64 `json:"cpuFactor,omitempty"` // 0: once
	MaxInstances *int     `json:"maxInstances,omitempty"`
}

// kept is what is kept for the host itself.
type kept struct {
	MemoryMb          *int `json:"memoryMb,omitempty"`
	CPU               *int `json:"cpu,omitempty"` // hundredths of a core
	DiskReservationMb *int `json:"diskReservationMb,omitempty"`
}

// nodeBody is what a client sends: the fields, and what comes with a read and may
// be sent back.
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
	Instances      json.RawMessage `json:"instances"`
}

// patchNode changes labels and room by a merge patch (RFC 7396) of those that count
// now; null for all labels, or for the room, leaves them to the agent's settings again.
func (a *API) patchNode(c *gin.Context) {
	raw, err := io.ReadAll(c.Request.Body)
	if err != nil {
		server.Fail(c, errs.As(errs.TooLarge, "rest.patchNode", err))
		return
	}
	var b nodeBody
	if err := wire.DecodeJSON(bytes.NewReader(raw), 0, &b); err != nil { // for its refusals
		server.Fail(c, err)
		return
	}
	patch, err := patchOf(raw, "labels", "room")
	if err != nil {
		server.Fail(c, err)
		return
	}
	w := operate.NodeWrite{
		Node: fleet.NodeID(c.Param("id")), DryRun: server.DryRun(c),
		Make: func(n *fleet.Node, present operate.NodeWishes) (operate.NodeWishes, error) {
			return wishes(n, present, patch)
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
	s := a.snapshot()
	n, ok := s.Nodes.Get(w.Node)
	switch {
	case !ok:
		server.Fail(c, errs.New(errs.NotFound, "the node was removed meanwhile"))
	case w.DryRun:
		c.JSON(http.StatusOK, nodeRehearsalOf(n, before, after))
	default:
		a.sendNode(c, s, n)
	}
}

// wishes are the present ones as a patch changes them. What a patch says that
// counts already stays as it is: what was read can be sent back.
func wishes(n *fleet.Node, present operate.NodeWishes, patch map[string]any) (operate.NodeWishes, error) {
	now := nodeFieldsOf(n, present)
	merged := asMap(now)
	merge(merged, patch)
	b, err := json.Marshal(merged)
	if err != nil {
		return present, errs.As(errs.Internal, "rest.wishes", err)
	}
	var wanted nodeFields
	if err := json.Unmarshal(b, &wanted); err != nil {
		return present, errs.As(errs.Internal, "rest.wishes", err)
	}
	out := present
	switch {
	case wanted.Labels == nil:
		out.Labels = nil
	case !maps.Equal(wanted.Labels.given(), now.Labels.given()):
		if out.Labels = wanted.Labels.given(); out.Labels == nil {
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

// nodeFieldsOf are labels and room as they count under wishes.
func nodeFieldsOf(n *fleet.Node, w operate.NodeWishes) nodeFields {
	d := &fleet.NodeDesired{Labels: w.Labels, Room: w.Room}
	return nodeFields{Labels: valuesOf(n.LabelsUnder(d)), Room: new(roomOf(n.RoomUnder(d)))}
}

// room is the room as the fleet has it.
func (r *nodeRoom) room() (out fleet.NodeRoom) {
	set(&out.CPUFactor, r.CPUFactor)
	set(&out.MaxInstances, r.MaxInstances)
	if r.Reserved != nil {
		set(&out.Reserved.MemoryMiB, r.Reserved.MemoryMb)
		set(&out.Reserved.CPU, r.Reserved.CPU)
		set(&out.Reserved.DiskMiB, r.Reserved.DiskReservationMb)
	}
	return out
}

// roomOf shows a room: every field.
func roomOf(r fleet.NodeRoom) nodeRoom {
	return nodeRoom{
		Reserved:  &kept{MemoryMb: &r.Reserved.MemoryMiB, CPU: &r.Reserved.CPU, DiskReservationMb: &r.Reserved.DiskMiB},
		CPUFactor: &r.CPUFactor, MaxInstances: &r.MaxInstances,
	}
}

// nodeRehearsal is what a dry run of a node's change found.
type nodeRehearsal struct {
	DryRun bool `json:"dryRun"`
	// Action is update or none.
	Action string        `json:"action"`
	Node   fleet.NodeID  `json:"node"`
	Diff   []fieldChange `json:"diff"`
}

func nodeRehearsalOf(n *fleet.Node, before, after operate.NodeWishes) nodeRehearsal {
	r := nodeRehearsal{DryRun: true, Action: "none", Node: n.ID, Diff: differences(nodeFieldsOf(n, before), nodeFieldsOf(n, after))}
	if len(r.Diff) > 0 {
		r.Action = "update"
	}
	return r
}
