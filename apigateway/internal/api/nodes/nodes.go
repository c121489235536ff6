package nodes

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// Node is a node in an answer.
type Node struct {
	ID            fleet.NodeID `json:"id"`
	NodeID        fleet.NodeID `json:"nodeId"`
	Address       string       `json:"address"`
	Type          string       `json:"type"`
	Status        string       `json:"status"`
	Cordoned      bool         `json:"cordoned"`
	Drain         *nodeDrain   `json:"drain,omitempty"` // absent unless drained
	CPUUsage      float64      `json:"cpuUsage"`        // 0..1
	TotalMemoryMb int          `json:"totalMemoryMb"`
	UsedMemoryMb  int          `json:"usedMemoryMb"`
	// SleepingMemoryMb is the memory that the sleeping instances on the node would hold if they ran.
	SleepingMemoryMb int               `json:"sleepingMemoryMb"`
	FreeDiskMb       int               `json:"freeDiskMb"`
	TotalDiskMb      int               `json:"totalDiskMb"`
	InstanceCount    int               `json:"instanceCount"`
	ConnectedSince   *time.Time        `json:"connectedSince"`
	LastHeartbeat    *time.Time        `json:"lastHeartbeat"`
	FirstSeen        time.Time         `json:"firstSeen"`
	LastSeen         *time.Time        `json:"lastSeen"`
	Labels           map[string]string `json:"labels"`
	HostInfo         hostInfo          `json:"hostInfo"`
	Version          string            `json:"version"`
	TotalCPU         int               `json:"totalCpu"` // hundredths of a core
	// Capacity is what the agent reports, Effective what instances may reserve of it under Room,
	// and Reserved what they reserve.
	Capacity  amount   `json:"capacity"`
	Effective amount   `json:"effectiveCapacity"`
	Reserved  amount   `json:"reserved"`
	Room      nodeRoom `json:"room"`
	// WarmTemplates are the template versions that are completely in the node's cache.
	WarmTemplates []warmTemplate `json:"warmTemplates"`
	// Message explains a fault of the node's capacity. It is empty otherwise.
	Message   string               `json:"message"`
	Runtimes  []fleet.NodeRuntime  `json:"runtimes"`
	Limits    fleet.NodeLimits     `json:"limits"`
	Tenants   *isolation.Tenants   `json:"tenants,omitempty"`
	Policy    *policy.Policy       `json:"policy,omitempty"`
	Instances []instances.Instance `json:"instances,omitempty"` // only in the answer for a single node
	Revoked   *revocation          `json:"revoked,omitempty"`   // only in the answer for a single node
}

// hostInfo describes the host. The Java fields exist for clients of PrexorCloud's API and are
// empty.
type hostInfo struct {
	OSName        string `json:"osName"`
	OSVersion     string `json:"osVersion"`
	Arch          string `json:"arch"`
	CPUModel      string `json:"cpuModel"`
	PhysicalCores *int   `json:"cpuPhysicalCores"` // null if unknown
	LogicalCores  int    `json:"cpuLogicalCores"`
	MaxFreqHz     *int64 `json:"cpuMaxFreqHz"` // null if unknown
	JavaVersion   string `json:"javaVersion"`
	JavaVendor    string `json:"javaVendor"`
	JavaRuntime   string `json:"javaRuntime"`
	JavaGC        string `json:"javaGc"`
}

func hostInfoOf(h fleet.HostInfo) hostInfo {
	out := hostInfo{OSName: h.OSName, OSVersion: h.OSVersion, Arch: h.Arch, CPUModel: h.CPUModel, LogicalCores: h.LogicalCores}
	if h.PhysicalCores > 0 {
		out.PhysicalCores = &h.PhysicalCores
	}
	if h.MaxFreqHz > 0 {
		out.MaxFreqHz = &h.MaxFreqHz
	}
	return out
}

// amount are resources of a node.
type amount struct {
	MemoryMb int `json:"memoryMb"`
	CPU      int `json:"cpu"` // hundredths of a core
	DiskMb   int `json:"diskMb"`
}

func (a *API) nodeRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/nodes", server.Needs(auth.NodesView), a.listNodes),
		server.Get("/api/v1/nodes/:id", server.Needs(auth.NodesView), a.getNode),
		server.Patch("/api/v1/nodes/:id", server.Needs(auth.NodesUpdate), a.patchNode).Rehearses(),
		server.Delete("/api/v1/nodes/:id", server.Needs(auth.NodesDrain), a.deleteNode).Rehearses(),
		server.Post("/api/v1/nodes/bulk", server.Needs(auth.NodesView, auth.NodesDrain), a.bulk).Rehearses(),
		server.Post("/api/v1/nodes/:id/cordon", server.Needs(auth.NodesDrain), a.cordon),
		server.Post("/api/v1/nodes/:id/uncordon", server.Needs(auth.NodesDrain), a.uncordon),
		server.Post("/api/v1/nodes/:id/drain", server.Needs(auth.NodesDrain), a.drain).Rehearses(),
		server.Post("/api/v1/nodes/:id/undrain", server.Needs(auth.NodesDrain), a.undrain).Rehearses(),
		server.Post("/api/v1/nodes/:id/shutdown", server.Needs(auth.NodesShutdown), a.shutdownNode).Rehearses(),
		server.Get("/api/v1/nodes/:id/cache", server.Needs(auth.NodesView), a.nodeCache),
		server.Post("/api/v1/nodes/:id/cache/refresh", server.Needs(auth.NodesView), a.refreshCache),
		server.Post("/api/v1/nodes/:id/cache/warm", server.Needs(auth.NodesDrain), a.warmCache),
	}
}

func amountOf(r fleet.Resources) amount { return amount{r.MemoryMiB, r.CPU, r.DiskMiB} }

// warmTemplate is a template version. Template is its name if it is the current version.
type warmTemplate struct {
	Digest   string `json:"digest"`
	Template string `json:"template,omitempty"`
}

// Viewer returns a function that shows the nodes of a snapshot.
func (a *API) Viewer(s *view.Snapshot) func(*fleet.Node) Node {
	templates := currentTemplates(s)
	return func(n *fleet.Node) Node { return a.nodeOf(s, n, templates) }
}

// nodeOf shows a node. templates are the names of the current versions by digest.
func (a *API) nodeOf(s *view.Snapshot, n *fleet.Node, templates map[string]string) Node {
	out := Node{
		ID: n.ID, NodeID: n.ID, Address: n.Address, Type: "DISCONNECTED", Status: "OFFLINE",
		TotalMemoryMb: n.Capacity.MemoryMiB, TotalCPU: n.Capacity.CPU, TotalDiskMb: n.Capacity.DiskMiB, FirstSeen: n.JoinedAt,
		Labels: map[string]string{}, Version: n.Version, Runtimes: *resource.List(n.Runtimes), Limits: n.Limits, Tenants: n.Tenants, Policy: n.Policy,
		HostInfo: hostInfoOf(n.Host),
	}
	if n.Host.TotalMiB > 0 { // usage is reported for the whole host
		out.TotalMemoryMb = n.Host.TotalMiB
	}
	out.addDesired(s, n)
	out.Drain = a.drainOf(s, n.ID)
	if session, alive := s.NodeSessions.Get(n.ID); alive {
		out.Type, out.Status, out.ConnectedSince = "CONNECTED", "ONLINE", &session.StartedAt
		switch {
		case a.cfg.Stale(n.ID):
			out.Status = "UNREACHABLE"
		case out.Drain != nil && out.Drain.CompletedAt == nil:
			out.Status = "DRAINING"
		case out.Cordoned:
			out.Status = "CORDONED"
		}
	}
	var held fleet.Resources
	for i := range s.NodeInstances(n.ID) {
		if i.HoldsNode() {
			out.InstanceCount++
			held = held.Add(i.Occupies())
			if i.Asleep() {
				out.SleepingMemoryMb += i.Placement.Resources.MemoryMiB
			}
		}
	}
	out.Reserved = amountOf(held)
	out.UsedMemoryMb = held.MemoryMiB
	if r, ok := s.Reports.Get(n.ID); ok {
		out.CPUUsage, out.UsedMemoryMb, out.FreeDiskMb = r.CPU, r.MemoryMiB, r.DiskFreeMiB
		out.LastHeartbeat, out.LastSeen = &r.At, &r.At
		out.WarmTemplates = named(r.Warm, templates)
		if r.DiskMiB > 0 {
			out.TotalDiskMb = r.DiskMiB
		}
	}
	return out
}

// addDesired adds the operator's settings and their effects.
func (out *Node) addDesired(s *view.Snapshot, n *fleet.Node) {
	d, _ := s.NodesDesired.Get(n.ID)
	out.Cordoned = d != nil && d.Cordoned
	for k, v := range n.LabelsUnder(d) {
		out.Labels[k] = v
	}
	room := n.RoomUnder(d)
	effective, err := room.Of(n.Capacity)
	if err != nil {
		out.Message = errs.MessageOf(err)
	}
	out.Room, out.Capacity, out.Effective = roomOf(room), amountOf(n.Capacity), amountOf(effective)
}

// named adds the template names of current versions.
func named(digests []string, names map[string]string) []warmTemplate {
	out := make([]warmTemplate, 0, len(digests))
	for _, d := range digests {
		out = append(out, warmTemplate{Digest: d, Template: names[d]})
	}
	return out
}

// currentTemplates returns the template names of the current versions by digest.
func currentTemplates(s *view.Snapshot) map[string]string {
	names := make(map[string]string, s.TemplateHeads.Len())
	for name, h := range s.TemplateHeads.All() {
		names[h.Digest] = name
	}
	return names
}

// listNodes filters by ?state, which is a status or a type.
func (a *API) listNodes(c *gin.Context) {
	s, state := a.cfg.Operations.Snapshot(), c.Query("state")
	var all []any
	show := a.Viewer(s)
	for _, n := range s.Nodes.All() {
		shown := show(n)
		if state == "" || strings.EqualFold(state, shown.Status) || strings.EqualFold(state, shown.Type) {
			all = append(all, shown)
		}
	}
	if state == "" || strings.EqualFold(state, pending) {
		for id := range s.JoinTokens.All() {
			if shown, ok := a.pendingOf(s, id); ok {
				all = append(all, shown)
			}
		}
	}
	server.SendPage(c, all, resource.LargePage, func(n any) any { return n })
}

func (a *API) getNode(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	id := fleet.NodeID(c.Param("id"))
	if n, ok := s.Nodes.Get(id); ok {
		a.sendNode(c, s, n)
		return
	}
	if shown, ok := a.pendingOf(s, id); ok {
		c.JSON(http.StatusOK, shown)
		return
	}
	server.Fail(c, errs.New(errs.NotFound, "there is no such node"))
}

// sendNode answers with a node and its instances.
func (a *API) sendNode(c *gin.Context, s *view.Snapshot, n *fleet.Node) {
	out := a.nodeOf(s, n, currentTemplates(s))
	out.Instances = slices.AppendSeq([]instances.Instance{}, a.cfg.Instances.ViewsOn(s, n.ID))
	out.Revoked = revocationOf(s, n.ID, a.cfg.Operations.Now())
	server.ETag(c, nodeops.NodeRevision(s, n))
	c.JSON(http.StatusOK, out)
}

// staticData is the data directory of a static instance on a node.
type staticData struct {
	Name  string           `json:"name"`
	Group fleet.GroupName  `json:"group"`
	UID   fleet.InstanceID `json:"uid,omitempty"` // absent without a record of the instance
	Bytes *int64           `json:"bytes"`         // null if unknown
}

// deleteNode removes a lost node. discardData=true gives up the data of static instances on it.
func (a *API) deleteNode(c *gin.Context) {
	d := nodeops.NodeDelete{Node: fleet.NodeID(c.Param("id")), DryRun: server.DryRun(c)}
	var err error
	if d.DiscardData, err = resource.DiscardsData(c); err == nil {
		d.IfMatch, err = server.IfMatch(c)
	}
	var data []nodeops.StaticData
	if err == nil {
		data, err = a.cfg.Operations.DeleteNode(c.Request.Context(), server.Actor(c), d)
	}
	switch {
	case err != nil:
		server.Fail(c, err)
	case d.DryRun:
		shown := make([]staticData, 0, len(data))
		for _, s := range data {
			shown = append(shown, staticData{s.Name, s.Group, s.ID, s.Bytes})
		}
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "action": "delete", "nodeId": d.Node, "needsDiscardData": len(data) > 0, "data": shown})
	default:
		c.Status(http.StatusNoContent)
	}
}

func (a *API) cordon(c *gin.Context) {
	changed, rev, err := a.cfg.Operations.Cordon(c.Request.Context(), server.Actor(c), fleet.NodeID(c.Param("id")))
	a.nodeStatus(c, gin.H{"status": "CORDONED", "changed": changed, "revision": rev}, err)
}

func (a *API) uncordon(c *gin.Context) {
	changed, rev, err := a.cfg.Operations.Uncordon(c.Request.Context(), server.Actor(c), fleet.NodeID(c.Param("id")))
	a.nodeStatus(c, gin.H{"status": "ONLINE", "changed": changed, "revision": rev}, err)
}

// nodeStatus answers with the new status of a node. It holds from the revision on.
func (a *API) nodeStatus(c *gin.Context, status gin.H, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	status["nodeId"] = c.Param("id")
	c.JSON(http.StatusOK, status)
}

// shutdownNode makes the agent of a node stop its instances and exit. It does not wait for that.
func (a *API) shutdownNode(c *gin.Context) {
	var b struct {
		Reason string `json:"reason"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	id := fleet.NodeID(c.Param("id"))
	err := a.cfg.Operations.ShutdownNode(c.Request.Context(), server.Actor(c), id, b.Reason, server.DryRun(c))
	switch {
	case errors.Is(err, nodeops.ErrNodeNotConnected):
		server.Refuse(c, wire.Reply{Status: http.StatusConflict, Code: "NODE_NOT_CONNECTED", Message: errs.MessageOf(err)})
	case err != nil:
		server.Fail(c, err)
	case server.DryRun(c):
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "action": "stop", "nodeId": id})
	default:
		c.JSON(http.StatusAccepted, gin.H{"status": "STOPPING", "nodeId": id})
	}
}
