package universe

import (
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The roles of this dialect: a node whose host has a gateway as well, and one that only
// runs instances.
const (
	master  = "master"
	wrapper = "wrapper"
)

// Node is a node as this dialect shows it, with what its clients were missing.
type Node struct {
	ID      fleet.NodeID `json:"id"`
	Name    fleet.NodeID `json:"name"`
	Address string       `json:"address"`
	Port    int          `json:"port"`  // of its agent
	Local   bool         `json:"local"` // whether it is this gateway's own host
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

// nodeDetail is one node with the ids of all its instances, whatever their state.
type nodeDetail struct {
	Node
	Instances []fleet.InstanceID `json:"instances"`
}

// NodeOf shows a node; local is the id of the gateway's own, "" when it has none.
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
	room, _ := n.RoomUnder(d).Of(n.Capacity) // of what cannot be, nothing is shown
	out.Capacity = capacity{RAMMB: room.MemoryMiB, CPU: room.CPU}
	for _, r := range n.Runtimes {
		if r.Offered {
			out.Runtimes = append(out.Runtimes, r.Name)
		}
	}
	for i := range s.NodeInstances(n.ID) {
		if i.HoldsNode() {
			out.Resources.RAMMB += i.Placement.Resources.MemoryMiB
			out.Resources.CPU += i.Placement.Resources.CPU
		}
	}
	return out
}

// agentPort is the port of a node's agent, 0 when it is unknown.
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
