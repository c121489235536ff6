package universe

import (
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The dialect's roles: a node whose host also runs a gateway, and one that only runs instances.
const (
	master  = "master"
	wrapper = "wrapper"
)

// Node is a node in this dialect.
type Node struct {
	ID      fleet.NodeID `json:"id"`
	Name    fleet.NodeID `json:"name"`
	Address string       `json:"address"`
	Port    int          `json:"port"`  // of its agent
	Local   bool         `json:"local"` // whether it is this gateway's host
	Role    string       `json:"role"`
	State   string       `json:"state"`

	Resources usage    `json:"resources"`
	Capacity  capacity `json:"capacity"`

	Cordoned bool                `json:"cordoned"`
	Runtimes []fleet.RuntimeName `json:"runtimes"`
	Labels   map[string]string   `json:"labels"`
	Version  string              `json:"version"`
}

type usage struct {
	RAMMB int `json:"usedRamMB"`
	CPU   int `json:"usedCpu"`
}

type capacity struct {
	RAMMB int `json:"maxRamMB"`
	CPU   int `json:"maxCpu"`
}

// nodeDetail is a node with the IDs of all its instances in any state.
type nodeDetail struct {
	Node
	Instances []fleet.InstanceID `json:"instances"`
}

// NodeOf converts a node. local is the ID of the gateway's own node, "" if it has none.
func NodeOf(s *view.Snapshot, n *fleet.Node, local fleet.NodeID) Node {
	out := Node{
		ID: n.ID, Name: n.ID, Address: n.Address, Port: agentPort(n), Local: n.ID == local, Role: wrapper, State: offline,
		Runtimes: []fleet.RuntimeName{}, Version: n.Version,
	}
	if out.Local {
		out.Role = master
	}
	if _, alive := s.NodeSessions.Get(n.ID); alive {
		out.State = online
	}
	d, _ := s.NodesDesired.Get(n.ID)
	out.Cordoned, out.Labels = d != nil && d.Cordoned, object(n.LabelsUnder(d))
	room, _ := n.RoomUnder(d).Of(n.Capacity) // invalid parts of the capacity count as 0
	out.Capacity = capacity{RAMMB: room.MemoryMiB, CPU: room.CPU}
	for _, r := range n.Runtimes {
		if r.Offered {
			out.Runtimes = append(out.Runtimes, r.Name)
		}
	}
	for i := range s.NodeInstances(n.ID) {
		if i.HoldsNode() {
			out.Resources.RAMMB += i.Occupies().MemoryMiB
			out.Resources.CPU += i.Occupies().CPU
		}
	}
	return out
}

// agentPort returns the port of a node's agent, 0 if it is unknown.
func agentPort(n *fleet.Node) int {
	port, _ := strconv.Atoi(n.AgentPort())
	return port
}

func nodeDetailOf(s *view.Snapshot, n *fleet.Node, local fleet.NodeID) nodeDetail {
	out := nodeDetail{Node: NodeOf(s, n, local), Instances: []fleet.InstanceID{}}
	for i := range s.NodeInstances(n.ID) {
		out.Instances = append(out.Instances, i.Intent.ID)
	}
	return out
}

// FindNode returns the node with a name or with the ID of its agent's data directory.
func FindNode(s *view.Snapshot, ref string) (*fleet.Node, bool) {
	if n, ok := s.Nodes.Get(fleet.NodeID(ref)); ok || ref == "" {
		return n, ok
	}
	for _, n := range s.Nodes.All() {
		if n.DataUUID == ref {
			return n, true
		}
	}
	return nil, false
}

func (a *API) listNodes(c *gin.Context) {
	s := a.snapshot()
	out := []Node{}
	for _, n := range s.Nodes.All() {
		out = append(out, NodeOf(s, n, fleet.NodeID(a.cfg.NodeID)))
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) getNode(c *gin.Context) {
	s := a.snapshot()
	n, ok := FindNode(s, c.Param("id"))
	if !ok {
		fail(c, errs.New(errs.NotFound, "Node not found"))
		return
	}
	c.JSON(http.StatusOK, nodeDetailOf(s, n, fleet.NodeID(a.cfg.NodeID)))
}
