// Package plan generates scenarios from seeds: what runs, and which faults happen when.
//
// A scenario is data and depends only on its seed and the Features. Targets that exist only
// at run time, such as a workload's process, are named by group and position.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// TTL is the TTL of all sessions in a scenario. Elections of etcd are shortened in
// proportion; see site.Options.Tick.
const TTL = 3 * time.Second

// Features are the capabilities that scenarios may use.
type Features struct {
	// Replicas runs two or three replicas of scheduler and enforcer.
	Replicas bool
	// NodeLoss keeps nodes away for longer than their sessions live.
	NodeLoss bool
	// ReplaceStatic lets static groups be replaced on node loss.
	ReplaceStatic bool
	// Nodes is the maximum number of nodes; at least 1.
	Nodes int
	// Disks allows small separate disks for the nodes' data directories.
	Disks bool
}

// Scenario is the scenario of one seed.
type Scenario struct {
	Seed uint64
	// Members of etcd; replicas of the services; nodes and the memory of each.
	Members, Schedulers, Enforcers, Gateways, Sources int
	Nodes, MemoryMiB                                  int
	Groups                                            []Group
	// Clocks are by how much the clocks of services are ahead, for each of their runs in
	// turn.
	Clocks map[string][]time.Duration
	// Faults are sorted by time.
	Faults []Fault
}

// Group is a declared group.
type Group struct {
	Name   string
	Static bool
	// Names are the names of the instances of a static group. Without them, it is GROUP-N.
	Names []string
	// ReplaceOnLoss is the node-loss policy of a static group: replace instead of wait.
	ReplaceOnLoss bool
	// Count is the declared number at the start, Final at the end.
	Count, Final int
	MemoryMiB    int
	// Crash is the time after which each run crashes by itself while there are faults. 0
	// means never.
	Crash time.Duration
	// ByHand means that its instances are started by hand: it has no minimum, and Final
	// equals Count.
	ByHand bool
	// Template means that its directories are built from a template.
	Template bool
}

// Has reports whether an instance of the group may have a name.
func (g Group) Has(instance string) bool {
	if len(g.Names) > 0 {
		return slices.Contains(g.Names, instance)
	}
	return strings.HasPrefix(instance, g.Name+"-")
}

// Kind is a kind of fault.
type Kind string

// Kinds of faults. Those with a duration are undone after it.
const (
	// Kill sends SIGKILL to a process of Orrery, and starts it again after the duration.
	Kill Kind = "kill"
	// Stop sends SIGTERM, and starts the process again after the duration.
	Stop Kind = "stop"
	// Pause sends SIGSTOP, and SIGCONT after the duration.
	Pause Kind = "pause"
	// CutBoth, CutUp and CutDown hold back the data between a process and etcd.
	CutBoth Kind = "cut"
	CutUp   Kind = "cut what is sent"
	CutDown Kind = "cut what is answered"
	// Delay adds 50 to 300 ms to each chunk.
	Delay Kind = "delay"
	// HalfOpen accepts connections and never answers.
	HalfOpen Kind = "half-open"
	// Refuse resets connections.
	Refuse Kind = "refuse"
	// Outage kills all members of etcd.
	Outage Kind = "etcd outage"
	// Compact compacts etcd's history.
	Compact Kind = "compact"
	// KillWorkload sends SIGKILL to one process of a group.
	KillWorkload Kind = "kill workload"
	// Scale declares a new count for a group.
	Scale Kind = "scale"
	// Switch declares the other node-loss policy of a static group while it runs.
	Switch Kind = "switch node-loss policy"
	// PowerCut kills an agent and everything on its node with SIGKILL, and starts the agent
	// again after the duration.
	PowerCut Kind = "power cut"
	// Deploy requests a rolling deployment of a group.
	Deploy Kind = "deploy"
	// Drain empties a node, and ends the drain after the duration. Without a duration, the drain
	// is ended once it is complete after all faults.
	Drain Kind = "drain"
	// Move moves a static instance with its data to a node that the scheduler chooses.
	Move Kind = "move"
	// FillDisk fills the disk of a node and kills a workload there, so that a start is
	// attempted on it.
	FillDisk Kind = "fill disk"
)

// Fault is one fault.
type Fault struct {
	// At is the time since the start of the faults. For is the duration; 0 means that it is
	// not undone.
	At, For time.Duration
	Kind    Kind
	// Target is the process, group, node, or for Move the instance.
	Target string
	// Peer limits a network fault to the connection to one process. Empty means all members
	// of etcd.
	Peer string
	// Number depends on the kind: the count for Scale, 1 for replace and 0 for wait for
	// Switch, the position for KillWorkload, the milliseconds for Delay, the batch for Deploy,
	// the seconds until the deadline for Drain and Move.
	Number int
}

// Policy returns the node-loss policy that a Switch declares.
func (f Fault) Policy() string {
	if f.Number == 1 {
		return "replace"
	}
	return "wait"
}

// String formats the fault for the log.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	if f.Target != "" {
		b.WriteString(" " + f.Target)
	}
	if f.Peer != "" {
		b.WriteString(" to " + f.Peer)
	}
	switch f.Kind {
	case Scale:
		fmt.Fprintf(&b, " to %d", f.Number)
	case Switch:
		fmt.Fprintf(&b, " to %s", f.Policy())
	case KillWorkload:
		fmt.Fprintf(&b, ", number %d", f.Number)
	case Deploy:
		fmt.Fprintf(&b, ", %d at once", f.Number)
	case Drain, Move:
		fmt.Fprintf(&b, " within %d s", f.Number)
	case Delay:
		fmt.Fprintf(&b, " by %d ms", f.Number)
	}
	if f.For > 0 {
		fmt.Fprintf(&b, " for %v", f.For)
	}
	return b.String()
}

// Has reports whether the scenario has a fault of a kind with a target; "" is any target.
func (s Scenario) Has(k Kind, target string) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == k && (target == "" || f.Target == target) })
}

// Services returns the names of the services' replicas, including agents.
func (s Scenario) Services() []string {
	var out []string
	for _, k := range []struct {
		name  string
		count int
	}{
		{"scheduler", s.Schedulers}, {"enforcer", s.Enforcers}, {"apigateway", s.Gateways}, {"templatesvc", s.Sources},
	} {
		out = append(out, numbered(k.name, k.count)...)
	}
	return append(out, s.NodeIDs()...)
}

// NodeIDs returns the IDs of the nodes.
func (s Scenario) NodeIDs() []string { return numbered("node", s.Nodes) }

// MemberNames returns the names of the etcd members.
func (s Scenario) MemberNames() []string { return numbered("etcd", s.Members) }

func numbered(name string, count int) []string {
	var out []string
	for n := range count {
		out = append(out, fmt.Sprint(name, "-", n+1))
	}
	return out
}
