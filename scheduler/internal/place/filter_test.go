package place_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/scheduler/internal/golden"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// refusals has a case for each filter, in the order of the golden file.
var refusals = []struct {
	rule   string
	filter string
	node   func(*place.Node)
	held   []place.Hold
	ask    func(*place.Request)
}{
	{rule: "a node without a session", filter: "session", node: func(n *place.Node) { n.Live = false }},
	{rule: "a cordoned node", filter: "cordon", node: func(n *place.Node) { n.Cordoned = true }},
	{rule: "a node the data does not lie on", filter: "data", ask: func(r *place.Request) { r.Pinned = "other" }},
	{rule: "the node that it moves from", filter: "source", ask: func(r *place.Request) { r.Leaves = "n" }},
	{rule: "a node the group does not list", filter: "nodes", ask: func(r *place.Request) { r.Plan.Where.Nodes = []fleet.NodeID{"m"} }},
	{rule: "a node without the runtime", filter: "runtime", ask: func(r *place.Request) { r.Plan.Runtime = fleet.RuntimeTmux }},
	{rule: "a node whose agent is older than the runtime", filter: "runtime", ask: func(r *place.Request) { r.Plan.Runtime = "vm" }},
	{rule: "a label that must be there", filter: "labels", ask: affinity("zone")},
	{rule: "a value that must be there", filter: "labels", ask: affinity("zone=a")},
	{rule: "one of some values that must be there", filter: "labels", ask: affinity("zone in (a, b)")},
	{rule: "a label that must not be there", filter: "labels", node: labelled("slow", "1"), ask: affinity("!slow")},
	{rule: "a value that must not be there", filter: "labels", node: labelled("slow", "1"), ask: affinity("slow!=1")},
	{rule: "a label the group keeps away from", filter: "labels", node: labelled("slow", "1"), ask: antiAffinity("slow")},
	{rule: "a value the group keeps away from", filter: "labels", node: labelled("slow", "1"), ask: antiAffinity("slow in (1, 2)")},
	{rule: "nodes without a label are what the group keeps away from", filter: "labels", ask: antiAffinity("!zone")},
	{rule: "negative memory", filter: "capacity", node: func(n *place.Node) { n.Capacity.MemoryMiB = -5 }},
	{rule: "more cores than there are", filter: "capacity", node: func(n *place.Node) { n.Capacity.CPU = 1 << 40 }, ask: func(r *place.Request) { r.Plan.Resources.CPU = 1 }},
	{rule: "negative disk", filter: "capacity", node: func(n *place.Node) { n.Capacity.DiskMiB = -1 }, ask: func(r *place.Request) { r.Plan.Resources.DiskMiB = 1 }},
	{rule: "a host user that the node does not admit", filter: "policy", node: admits(policy.Policy{Users: []string{"games"}}), ask: as("root")},
	{rule: "a host user and a node that admits none", filter: "policy", node: admits(policy.Policy{}), ask: as("games")},
	{rule: "a user in the container", filter: "policy", node: admits(policy.Policy{}), ask: contained(isolation.Container{User: "0:0"})},
	{rule: "the host's network", filter: "policy", node: admits(policy.Policy{}), ask: contained(isolation.Container{Network: "host"})},
	{rule: "a directory beside those that the node admits", filter: "policy", node: admits(policy.Policy{Volumes: []string{"/srv/maps"}}), ask: contained(isolation.Container{Volumes: []string{"/srv/maps:/a:ro", "/srv/maps2:/b"}})},
	{rule: "an image of another registry", filter: "policy", node: admits(policy.Policy{Images: []string{"ghcr.io/team/*"}}), ask: contained(isolation.Container{Image: "debian"})},
	{rule: "an image that the environment names", filter: "policy", node: admits(policy.Policy{Images: []string{"debian"}}), ask: func(r *place.Request) {
		contained(isolation.Container{Image: "debian"})(r)
		r.Plan.Env = map[string]string{"CUSTOM_IMAGE": "alpine"}
	}},
	{rule: "what the engine may take for the id of an image", filter: "policy", node: admits(policy.Policy{Images: []string{"docker.io/*"}}), ask: contained(isolation.Container{Image: "sha256:0123abcd"})},
	{rule: "too little memory beside others", filter: "memory", held: []place.Hold{{Group: "arena", Resources: fleet.Resources{MemoryMiB: 940}}}},
	{
		rule: "too little memory beside others and what the host keeps", filter: "memory", node: func(n *place.Node) { n.Room.Reserved.MemoryMiB = 500 },
		held: []place.Hold{{Group: "arena", Resources: fleet.Resources{MemoryMiB: 440}}},
	},
	{
		rule: "too little CPU beside others", filter: "cpu", held: []place.Hold{{Group: "arena", Resources: fleet.Resources{CPU: 350}}},
		ask: func(r *place.Request) { r.Plan.Resources.CPU = 100 },
	},
	{
		rule: "too little disk beside others", filter: "disk", held: []place.Hold{{Group: "arena", Resources: fleet.Resources{DiskMiB: 9_500}}},
		ask: func(r *place.Request) { r.Plan.Resources.DiskMiB = 600 },
	},
	{rule: "too little memory", filter: "memory", ask: func(r *place.Request) { r.Plan.Resources.MemoryMiB = 1001 }},
	{rule: "too little memory beside what the host keeps", filter: "memory", node: func(n *place.Node) { n.Room.Reserved.MemoryMiB = 950 }},
	{rule: "more kept for the host than there is", filter: "memory", node: func(n *place.Node) { n.Room.Reserved.MemoryMiB = 2000 }},
	{rule: "too little CPU", filter: "cpu", ask: func(r *place.Request) { r.Plan.Resources.CPU = 500 }},
	{rule: "too little CPU even twice over", filter: "cpu", node: func(n *place.Node) { n.Room.CPUFactor = 2 }, ask: func(r *place.Request) { r.Plan.Resources.CPU = 801 }},
	{rule: "too little disk", filter: "disk", ask: func(r *place.Request) { r.Plan.Resources.DiskMiB = 10_001 }},
	{rule: "a full disk", filter: "template", node: func(n *place.Node) { n.DiskMiB = 1000 }, ask: func(r *place.Request) { r.TemplateMiB = 1 }},
	{rule: "a nearly full disk", filter: "template", node: func(n *place.Node) { n.DiskFreeMiB = 10 }, ask: func(r *place.Request) { r.TemplateMiB = 25 }},
	{rule: "as many instances as the node may have", filter: "instances", node: func(n *place.Node) { n.Room.MaxInstances = 1 }, held: []place.Hold{{Group: "arena"}}},
	{rule: "as many of the group as a node may have", filter: "own", held: []place.Hold{{Group: "lobby"}, {Group: "lobby"}}, ask: func(r *place.Request) { r.Plan.Where.MaxPerNode = 2 }},
	{rule: "a node that is another group's", filter: "alone", held: []place.Hold{{Group: "arena", Alone: true}}},
	{rule: "others on a node the group wants for itself", filter: "alone", held: []place.Hold{{Group: "arena"}, {Group: "battle"}}, ask: func(r *place.Request) { r.Plan.Where.Alone = true }},
	{rule: "no main port", filter: "ports", held: []place.Hold{{Group: "arena", Ports: []int{100, 101, 102}}}},
	{rule: "no additional port", filter: "ports", held: []place.Hold{{Group: "arena", Ports: []int{7}}}, ask: func(r *place.Request) {
		r.Plan.AdditionalPorts = []fleet.NamedPort{named("query", 7, 7)}
	}},
	{rule: "too few ports for all", filter: "ports", ask: func(r *place.Request) {
		r.Plan.AdditionalPorts = []fleet.NamedPort{named("query", 100, 102), named("rcon", 100, 102), named("map", 100, 102)}
	}},
	{rule: "a node without the label whose values must be even", filter: "spread", ask: func(r *place.Request) { r.Plan.Where.Spread, r.Plan.Where.MaxSkew = "zone", 1 }},
}

func admits(p policy.Policy) func(*place.Node) {
	return func(n *place.Node) {
		n.Policy, n.Runtimes = &p, append(n.Runtimes, fleet.NodeRuntime{Name: fleet.RuntimeDocker, Offered: true})
	}
}

func as(user string) func(*place.Request) {
	return func(r *place.Request) { r.Plan.Confine.User = user }
}

func contained(c isolation.Container) func(*place.Request) {
	return func(r *place.Request) { r.Plan.Runtime, r.Plan.Container = fleet.RuntimeDocker, c }
}

func affinity(expr string) func(*place.Request) {
	return func(r *place.Request) { r.Plan.Where.Affinity = []string{expr} }
}

func antiAffinity(expr string) func(*place.Request) {
	return func(r *place.Request) { r.Plan.Where.AntiAffinity = []string{expr} }
}

func labelled(key, value string) func(*place.Node) {
	return func(n *place.Node) { n.Labels = map[string]string{key: value} }
}

// testdata/refusals.txt has the expected texts.
func TestEachFilterExcludesAndSaysWhatWouldHelp(t *testing.T) {
	var said strings.Builder
	for _, c := range refusals {
		t.Run(c.rule, func(t *testing.T) {
			n, r := node("n"), request()
			if c.node != nil {
				c.node(&n)
			}
			if c.ask != nil {
				c.ask(r)
			}
			m := model(n)
			for _, h := range c.held {
				h.Node = "n"
				m.Charge(h)
			}
			_, unfit := m.Place(r)
			if unfit == nil {
				t.Fatal("it was chosen")
			}
			if len(unfit.Lost) != 1 || unfit.Lost[0].Filter != c.filter || unfit.Lost[0].Nodes != 1 {
				t.Fatalf("lost %+v, want one by %s", unfit.Lost, c.filter)
			}
			if want := fmt.Sprintf("0 of 1 nodes can take it: 1 by %s (%s)", c.filter, unfit.Lost[0].Fix); unfit.Message != want {
				t.Errorf("message %q, want %q", unfit.Message, want)
			}
			fmt.Fprintf(&said, "%s\n\t%s: %s\n", c.rule, c.filter, unfit.Lost[0].Fix)
		})
	}
	golden.File(t, "refusals.txt", said.String())
}
