package rest

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// node is a node as this dialect shows it.
type node struct {
	ID             fleet.NodeID        `json:"id"`
	NodeID         fleet.NodeID        `json:"nodeId"`
	Address        string              `json:"address"`
	Type           string              `json:"type"`
	Status         string              `json:"status"`
	Cordoned       bool                `json:"cordoned"`
	CPUUsage       float64             `json:"cpuUsage"` // 0..1
	TotalMemoryMb  int                 `json:"totalMemoryMb"`
	UsedMemoryMb   int                 `json:"usedMemoryMb"`
	FreeDiskMb     int                 `json:"freeDiskMb"`
	TotalDiskMb    int                 `json:"totalDiskMb"`
	InstanceCount  int                 `json:"instanceCount"`
	ConnectedSince *time.Time          `json:"connectedSince"`
	LastHeartbeat  *time.Time          `json:"lastHeartbeat"`
	FirstSeen      time.Time           `json:"firstSeen"`
	LastSeen       *time.Time          `json:"lastSeen"`
	Labels         map[string]string   `json:"labels"`
	HostInfo       hostInfo            `json:"hostInfo"`
	Version        string              `json:"version"`
	TotalCPU       int                 `json:"totalCpu"` // hundredths of a core
	Reserved       reserved            `json:"reserved"`
	Runtimes       []fleet.NodeRuntime `json:"runtimes"`
	Instances      []instance          `json:"instances,omitempty"` // of a single node only
}

type hostInfo struct {
	OSName       string `json:"osName"`
	OSVersion    string `json:"osVersion"`
	Arch         string `json:"arch"`
	CPUModel     string `json:"cpuModel"`
	LogicalCores int    `json:"cpuLogicalCores"`
}

// reserved is what placements hold of the node.
type reserved struct {
	MemoryMb int `json:"memoryMb"`
	CPU      int `json:"cpu"`
	DiskMb   int `json:"diskMb"`
}

// nodeOf shows a node as a snapshot has it.
func nodeOf(s *view.Snapshot, n *fleet.Node) node {
	out := node{
		ID: n.ID, NodeID: n.ID, Address: n.Address, Type: "DISCONNECTED", Status: "OFFLINE",
		TotalMemoryMb: n.Capacity.MemoryMiB, TotalCPU: n.Capacity.CPU, TotalDiskMb: n.Capacity.DiskMiB, FirstSeen: n.JoinedAt,
		Labels: map[string]string{}, Version: n.Version, Runtimes: *list(n.Runtimes),
		HostInfo: hostInfo{
			OSName: n.Host.OSName, OSVersion: n.Host.OSVersion, Arch: n.Host.Arch,
			CPUModel: n.Host.CPUModel, LogicalCores: n.Host.LogicalCores,
		},
	}
	for k, v := range n.Labels {
		out.Labels[k] = v
	}
	out.addDesired(s, n.ID)
	if session, alive := s.NodeSessions.Get(n.ID); alive {
		out.Type, out.Status, out.ConnectedSince = "CONNECTED", "ONLINE", &session.StartedAt
		if out.Cordoned {
			out.Status = "CORDONED"
		}
	}
	var held fleet.Resources
	for i := range s.NodeInstances(n.ID) {
		if i.HoldsNode() {
			out.InstanceCount++
			held = held.Add(i.Placement.Resources)
		}
	}
	out.Reserved = reserved{MemoryMb: held.MemoryMiB, CPU: held.CPU, DiskMb: held.DiskMiB}
	out.UsedMemoryMb = held.MemoryMiB
	if r, ok := s.Reports.Get(n.ID); ok {
		out.CPUUsage, out.UsedMemoryMb, out.FreeDiskMb = r.CPU, r.MemoryMiB, r.DiskFreeMiB
		out.LastHeartbeat, out.LastSeen = &r.At, &r.At
		if r.DiskMiB > 0 {
			out.TotalDiskMb = r.DiskMiB
		}
	}
	return out
}

// addDesired adds the operator's wishes.
func (out *node) addDesired(s *view.Snapshot, id fleet.NodeID) {
	d, ok := s.NodesDesired.Get(id)
	if !ok {
		return
	}
	out.Cordoned = d.Cordoned
	for k, v := range d.Labels {
		out.Labels[k] = v
	}
}

// listNodes takes ?state= for a status or a type.
func (a *API) listNodes(c *gin.Context) {
	s, state := a.snapshot(), c.Query("state")
	var all []node
	for _, n := range s.Nodes.All() {
		shown := nodeOf(s, n)
		if state == "" || strings.EqualFold(state, shown.Status) || strings.EqualFold(state, shown.Type) {
			all = append(all, shown)
		}
	}
	server.SendPage(c, all, pageMany, func(n node) node { return n })
}

func (a *API) getNode(c *gin.Context) {
	s := a.snapshot()
	n, ok := s.Nodes.Get(fleet.NodeID(c.Param("id")))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such node"))
		return
	}
	out := nodeOf(s, n)
	out.Instances = []instance{}
	for _, i := range instancesOf(s, instanceFilter{node: n.ID}) {
		out.Instances = append(out.Instances, instanceOf(s, i, a.cfg.Now()))
	}
	server.ETag(c, n.ModRev)
	c.JSON(http.StatusOK, out)
}

// deleteNode gives up a node that is lost for good.
func (a *API) deleteNode(c *gin.Context) {
	if _, err := a.cfg.Operations.DeleteNode(c.Request.Context(), server.Actor(c), fleet.NodeID(c.Param("id"))); err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

func (a *API) cordon(c *gin.Context) {
	_, err := a.cfg.Operations.Cordon(c.Request.Context(), server.Actor(c), fleet.NodeID(c.Param("id")))
	a.nodeStatus(c, err, "CORDONED")
}

func (a *API) uncordon(c *gin.Context) {
	_, err := a.cfg.Operations.Uncordon(c.Request.Context(), server.Actor(c), fleet.NodeID(c.Param("id")))
	a.nodeStatus(c, err, "ONLINE")
}

func (a *API) nodeStatus(c *gin.Context, err error, status string) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": status})
}
