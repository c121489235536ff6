// Package plan makes scenarios from seeds: what runs, and what goes wrong when.
//
// A scenario is data and depends on nothing but its seed and the Features; only
// carrying it out is real. Targets that exist only at run time, such as a workload's
// process, are named by group and position.
package plan

import (
	"fmt"
	"strings"
	"time"
)

// TTL of all sessions in a scenario. Elections of etcd are shortened as much as this TTL;
// see site.Options.Tick.
const TTL = 3 * time.Second

// Features are what scenarios may make use of.
type Features struct {
	// Replicas runs two or three replicas of scheduler and enforcer.
	Replicas bool
	// NodeLoss keeps nodes away for longer than their sessions live.
	NodeLoss bool
	// ReplaceStatic lets static groups be replaced on node loss.
	ReplaceStatic bool
	// Nodes is the most nodes a scenario has; at least 1.
	Nodes int
	// Disks says that a node's data directory may lie on a small disk of its own.
	Disks bool
}

// Scenario is what one seed says.
type Scenario struct {
	Seed uint64
	// Members of etcd; replicas of the services; nodes and the memory of each.
	Members, Schedulers, Enforcers, Gateways, Sources int
	Nodes, MemoryMiB                                  int
	Groups                                            []Group
	// Clocks are how far the clocks of services are ahead: of the first run of each, of
	// the second, and so on in turn.
	Clocks map[string][]time.Duration
	// Faults in the order of their times.
	Faults []Fault
}

// Group is a declared group.
type Group struct {
	Name   string
	Static bool
	// ReplaceOnLoss is the node-loss policy of a static group: replace instead of wait.
	ReplaceOnLoss bool
	// Count is the declared number at the start, Final at the end.
	Count, Final int
	MemoryMiB    int
	// Crash is when each run of it crashes by itself while there are faults. 0: never.
	Crash time.Duration
	// ByHand says that its instances are started by hand: it has no minimum, and Final is Count.
	ByHand bool
	// Template says that its directories are built from a template.
	Template bool
}

// Kind is a kind of fault.
type Kind string

// The kinds. Those with a duration are undone after it.
const (
	// Kill is SIGKILL of a process of ours; it is started again after the duration.
	Kill Kind = "kill"
	// Stop is SIGTERM; it is started again after the duration.
	Stop Kind = "stop"
	// Pause is SIGSTOP, and SIGCONT after the duration.
	Pause Kind = "pause"
	// CutBoth, CutUp and CutDown hold back what a process and etcd say to each other.
	CutBoth Kind = "cut"
	CutUp   Kind = "cut what is sent"
	CutDown Kind = "cut what is answered"
	// Delay adds 50 to 300 ms to each chunk.
	Delay Kind = "delay"
	// HalfOpen lets connections in and never answers.
	HalfOpen Kind = "half-open"
	// Refuse resets connections.
	Refuse Kind = "refuse"
	// Outage kills all members of etcd.
	Outage Kind = "etcd outage"
	// Compact compacts etcd's history up to now.
	Compact Kind = "compact"
	// KillWorkload is SIGKILL of one process of a group.
	KillWorkload Kind = "kill workload"
	// Scale declares another count of a group.
	Scale Kind = "scale"
	// Switch declares the other node-loss policy of a static group, while it runs.
	Switch Kind = "switch node-loss policy"
	// PowerCut is SIGKILL of an agent and everything on its node; the agent is
	// started again after the duration.
	PowerCut Kind = "power cut"
	// FillDisk fills the disk of a node, and kills a workload there, so that something
	// is to be started on it.
	FillDisk Kind = "fill disk"
)

// Fault is one thing that goes wrong.
type Fault struct {
	// At is the time since the faults began, For how long it lasts; 0: it has no end.
	At, For time.Duration
	Kind    Kind
	// Target is the process, group or node.
	Target string
	// Peer limits a fault of the network to the line to one process; empty: to all
	// members of etcd.
	Peer string
	// Number is the count of Scale, 1 for replace and 0 for wait of Switch, the position of KillWorkload, the milliseconds of Delay.
	Number int
}

// Policy is the node-loss policy that a Switch declares.
func (f Fault) Policy() string {
	if f.Number == 1 {
		return "replace"
	}
	return "wait"
}

// String is the fault as the log shows it.
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
	case Delay:
		fmt.Fprintf(&b, " by %d ms", f.Number)
	}
	if f.For > 0 {
		fmt.Fprintf(&b, " for %v", f.For)
	}
	return b.String()
}

// Services are the names of the services' replicas, agents included.
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

// NodeIDs are the nodes.
func (s Scenario) NodeIDs() []string { return numbered("node", s.Nodes) }

// MemberNames are the members of etcd.
func (s Scenario) MemberNames() []string { return numbered("etcd", s.Members) }

func numbered(name string, count int) []string {
	var out []string
	for n := range count {
		out = append(out, fmt.Sprint(name, "-", n+1))
	}
	return out
}
