package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/compat/universe"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func (*Interpreter) clusterCommands() []command {
	nodes := []auth.Permission{auth.NodesView}
	return []command{
		{name: "cluster status", about: "show the name of the cluster, its live services and its instances", needs: []auth.Permission{auth.ClusterView}, run: clusterStatus},
		{name: "cluster nodes", about: "list the nodes with their states", needs: nodes, run: clusterNodes},
		{name: "cluster shutdown", args: []string{"[confirm]"}, about: "stop all instances, agents and gateways", needs: []auth.Permission{auth.SystemShutdown, auth.NodesShutdown}, changes: true, through: true, run: shutdownCluster},
		{name: "node info", about: "show the node of this console", needs: nodes, run: nodeInfo},
		{name: "node resources", about: "show the resources of this node that instances use", needs: nodes, run: nodeResources},
	}
}

// not returns a command that is not implemented.
func not(what string) func(context.Context, *call) error {
	return func(context.Context, *call) error { return errs.New(errs.Invalid, "not implemented yet: %s", what) }
}

func clusterStatus(_ context.Context, c *call) error {
	s := c.snapshot
	connected := 0
	for id := range s.Nodes.All() {
		if _, alive := s.NodeSessions.Get(id); alive {
			connected++
		}
	}
	states := map[string]int{}
	for _, i := range s.Instances.All() {
		states[universe.InstanceOf(s, i, c.cfg.Now()).State]++
	}
	var by []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		by = append(by, fmt.Sprintf("%d %s", states[state], state))
	}
	rows := [][]string{
		{"cluster", c.cfg.ClusterName},
		{"id", c.cfg.ClusterID},
		{"nodes", fmt.Sprintf("%d of %d connected", connected, s.Nodes.Len())},
		{"configurations", strconv.Itoa(s.Groups.Len())},
		{"instances", dash(strings.Join(by, ", "))},
	}
	for _, replica := range s.Sessions.All() {
		rows = append(rows, []string{replica.Service, replica.Replica + "  " + dash(replica.Version)})
	}
	return c.table(rows)
}

func clusterNodes(_ context.Context, c *call) error {
	rows := [][]string{{"ID", "STATE", "ADDRESS", "PORT", "INSTANCES", "VERSION", ""}}
	for id, n := range c.snapshot.Nodes.All() {
		shown, mark := universe.NodeOf(c.snapshot, n, c.Node), ""
		if shown.Cordoned {
			mark = "[CORDONED]"
		}
		rows = append(rows, []string{string(id), shown.State, shown.Address, number(shown.Port), strconv.Itoa(holding(c, id)), dash(shown.Version), mark})
	}
	if len(rows) == 1 {
		return c.say("there are no nodes")
	}
	return c.table(rows)
}

// holding counts the instances that hold resources on a node.
func holding(c *call, id fleet.NodeID) int {
	n := 0
	for i := range c.snapshot.NodeInstances(id) {
		if i.HoldsNode() {
			n++
		}
	}
	return n
}

// node returns the console's node. It returns Invalid if the console belongs to no node.
func (c *call) node() (*fleet.Node, error) {
	if n, ok := c.snapshot.Nodes.Get(c.Node); ok {
		return n, nil
	}
	return nil, errs.New(errs.Invalid, "this gateway has no node of its own: send the command to a node")
}

func nodeInfo(_ context.Context, c *call) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	shown := universe.NodeOf(c.snapshot, n, c.Node)
	var runtimes []string
	for _, r := range shown.Runtimes {
		runtimes = append(runtimes, string(r))
	}
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(shown.Labels)) {
		labels = append(labels, k+"="+shown.Labels[k])
	}
	return c.table([][]string{
		{"id", string(n.ID)},
		{"state", shown.State},
		{"role", shown.Role},
		{"address", shown.Address},
		{"agent", dash(n.AgentURL)},
		{"version", dash(n.Version)},
		{"host", dash(strings.Join(strings.Fields(n.Host.Hostname+" "+n.Host.OSName+" "+n.Host.OSVersion+" "+n.Host.Arch), " "))},
		{"runtimes", dash(strings.Join(runtimes, ", "))},
		{"labels", dash(strings.Join(labels, ", "))},
		{"cordoned", strconv.FormatBool(shown.Cordoned)},
		{"memory", fmt.Sprintf("%d of %d MB held", shown.Resources.RAMMB, shown.Capacity.RAMMB)},
		{"cpu", fmt.Sprintf("%d of %d held", shown.Resources.CPU, shown.Capacity.CPU)},
		{"instances", strconv.Itoa(holding(c, n.ID))},
	})
}

func nodeResources(_ context.Context, c *call) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	shown := universe.NodeOf(c.snapshot, n, c.Node)
	d, _ := c.snapshot.NodesDesired.Get(n.ID)
	rows := [][]string{
		{"", "HELD", "MOST"},
		{"memory (MB)", strconv.Itoa(shown.Resources.RAMMB), strconv.Itoa(shown.Capacity.RAMMB)},
		{"cpu (100 = a core)", strconv.Itoa(shown.Resources.CPU), strconv.Itoa(shown.Capacity.CPU)},
		{"instances", strconv.Itoa(holding(c, n.ID)), number(n.RoomUnder(d).MaxInstances)},
	}
	if r, ok := c.snapshot.Reports.Get(n.ID); ok {
		rows = append(rows, []string{"host memory in use (MB)", strconv.Itoa(r.MemoryMiB)}, []string{"host cpu in use (%)", strconv.Itoa(int(r.CPU*100 + 0.5))})
	}
	return c.table(rows)
}
