package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// pair is a cluster of two nodes. node-1 has plenty of everything and no label. node-2 has
// 100 MiB, one core and the label rack=r1. Most scenarios use only node-2.
type pair struct {
	t     *testing.T
	admin *cluster.Client
	c     cluster.Local
	two   *cluster.Node
}

func newPair(t *testing.T) *pair {
	t.Helper()
	c := cluster.Start(t, cluster.Options{MemoryMiB: 1000, CPU: 1000})
	admin := cluster.Login(t, c)
	two := cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2", MemoryMiB: 100, CPU: 100, Labels: map[string]string{"rack": "r1"}})
	return &pair{t: t, c: c, admin: admin, two: two}
}

// on returns the pair for a subtest.
func (p *pair) on(t *testing.T) *pair {
	other := *p
	other.t, other.admin = t, p.admin.On(t)
	return &other
}

// say patches node-2.
func (p *pair) say(patch string) {
	p.t.Helper()
	p.admin.Do("PATCH", "/api/v1/nodes/node-2", patch).OK(200)
}

// hold runs an instance of the group "holder" on node-2. release ends it.
func (p *pair) hold(fields map[string]any) (release func()) {
	p.t.Helper()
	spec := catGroup("holder", map[string]any{"nodes": []string{"node-2"}, "minInstances": 1})
	for k, v := range fields {
		spec[k] = v
	}
	createGroup(p.t, p.admin, spec)
	p.admin.AwaitRunning("holder", 1)
	return func() { p.remove("holder") }
}

// tidy undoes the effects of a scenario.
func (p *pair) tidy(group string) {
	p.t.Helper()
	for _, node := range []string{"node-1", "node-2"} {
		p.admin.Do("POST", "/api/v1/nodes/"+node+"/uncordon", nil).OK(200)
		p.admin.Do("PATCH", "/api/v1/nodes/"+node, `{"labels":null,"room":null}`).OK(200)
	}
	p.remove("holder")
	p.remove(group)
}

// remove deletes a group if it exists, and waits until it is gone.
func (p *pair) remove(group string) {
	p.t.Helper()
	p.admin.Do("DELETE", "/api/v1/groups/"+group, nil)
	await.That(p.t, "the end of "+group, func() string {
		r := p.admin.Do("GET", "/api/v1/groups/"+group, nil)
		return await.Unless(r.Status == 404 && len(p.admin.Instances(group)) == 0, "%s %+v", r.Body, p.admin.Instances(group))
	})
}

// waits returns the unplaced instance of a group, once there is one.
func (p *pair) waits(group string) (waiting cluster.Instance) {
	p.t.Helper()
	await.That(p.t, "an instance of "+group+" without a node", func() string {
		all := p.admin.Instances(group)
		n := slices.IndexFunc(all, func(i cluster.Instance) bool { return i.State == "SCHEDULED" && i.Reason != "Unscheduled" })
		if n < 0 {
			return fmt.Sprintf("%+v", all)
		}
		waiting = all[n]
		return ""
	})
	return waiting
}

// excluded is a scenario in which a filter excludes the node, and then no longer does.
type excluded struct {
	rule string
	// group is the group's spec. It is restricted to node-2 unless it has its own rules
	// about nodes.
	group map[string]any
	// before creates the reason for exclusion, and returns a function that removes it. It
	// may be nil when after is set.
	before func(p *pair) (cure func())
	// after removes the reason when before returns no function.
	after func(p *pair)
	// filter is the name of the filter, and says is part of its fix.
	filter, says string
}

// labelled returns a scenario about the labels of node-2, which are rack=r1 at first.
func labelled(field, expr, says, cure string) excluded {
	return excluded{
		rule: field + " " + expr, group: map[string]any{field: []string{expr}}, filter: "labels", says: says,
		after: func(p *pair) { p.say(`{"labels":` + cure + `}`) },
	}
}

func held(fields map[string]any) func(p *pair) func() {
	return func(p *pair) func() { return p.hold(fields) }
}

func said(patch, cure string) func(p *pair) func() {
	return func(p *pair) func() {
		p.say(patch)
		return func() { p.say(cure) }
	}
}

type fields = map[string]any

func udp(port int) []fields {
	return []fields{{"name": "query", "protocol": "udp", "port": port}}
}

func tcp(port int) []fields {
	return []fields{{"name": "rcon", "protocol": "tcp", "port": port}}
}

var exclusions = []excluded{
	labelled("nodeAffinity", "ssd", "set the label ssd", `{"ssd":""}`),
	labelled("nodeAffinity", "rack=r2", "set the label rack=r2", `{"rack":"r2"}`),
	labelled("nodeAffinity", "rack!=r1", "remove the label rack=r1", `{"rack":"r2"}`),
	labelled("nodeAffinity", "rack in (r2, r3)", "set the label rack to one of r2, r3", `{"rack":"r3"}`),
	labelled("nodeAffinity", "rack notin (r1, r4)", "remove the label rack=r1", `{"rack":null}`),
	labelled("nodeAffinity", "!rack", "remove the label rack", `{"rack":null}`),
	labelled("nodeAntiAffinity", "rack", "remove the label rack", `{"rack":null}`),
	labelled("nodeAntiAffinity", "rack=r1", "remove the label rack=r1", `{"rack":"r2"}`),
	{
		rule: "memory others have", group: fields{"memoryMb": 60}, before: held(fields{"memoryMb": 60}),
		filter: "memory", says: "node-2 has 40 MiB free of 100, 20 more are needed",
	},
	{
		rule: "memory kept for the host", group: fields{"memoryMb": 60},
		before: said(`{"room":{"reserved":{"memoryMb":95}}}`, `{"room":{"reserved":{"memoryMb":40}}}`),
		filter: "memory", says: "node-2 has 5 MiB in all (95 are kept for the host), 60 are requested",
	},
	{
		rule: "CPU, until each core may be reserved twice", group: fields{"cpu": 150},
		after:  func(p *pair) { p.say(`{"room":{"cpuFactor":2}}`) },
		filter: "cpu", says: "node-2 has 100 hundredths of a core in all, 150 are requested",
	},
	{
		rule: "disk", group: fields{"diskReservationMb": 1},
		before: said(`{"room":{"reserved":{"diskReservationMb":1073741824}}}`, `{"room":null}`),
		filter: "disk", says: "are kept for the host), 1 are requested",
	},
	{
		rule: "the main port", group: fields{"portRangeStart": 21500, "portRangeEnd": 21500},
		before: held(fields{"portRangeStart": 21500, "portRangeEnd": 21500}),
		filter: "ports", says: "no port is free on node-2 between 21500 and 21500",
	},
	{
		rule: "an additional port, TCP and UDP being one number", group: fields{"additionalPorts": udp(21510)},
		before: held(fields{"additionalPorts": tcp(21510)}),
		filter: "ports", says: "no port is free on node-2 between 21510 and 21510: widen the range of the port query",
	},
	{
		rule: "as many instances as the node may have", before: func(p *pair) func() {
			p.hold(nil)
			p.say(`{"room":{"maxInstances":1}}`)
			return func() { p.say(`{"room":{"maxInstances":2}}`) }
		},
		filter: "instances", says: "node-2 has as many instances as it may, 1: raise its maxInstances",
	},
	{
		rule: "another group's own node", before: held(fields{"exclusiveNode": true}),
		filter: "alone", says: "node-2 belongs to instances of holder, which want it for themselves",
	},
	{
		rule: "others on a node that is wanted for itself", group: fields{"exclusiveNode": true}, before: held(nil),
		filter: "alone", says: "node-2 holds instances of holder, and the group wants its nodes for itself",
	},
	{
		rule: "a cordon",
		before: func(p *pair) func() {
			p.admin.Do("POST", "/api/v1/nodes/node-2/cordon", nil).OK(200)
			return func() { p.admin.Do("POST", "/api/v1/nodes/node-2/uncordon", nil).OK(200) }
		},
		filter: "cordon", says: "uncordon node-2",
	},
	{
		rule: "an agent that is away",
		before: func(p *pair) func() {
			if err := p.two.Stop(); err != nil {
				p.t.Fatal(err)
			}
			return func() {
				if err := p.two.Start(); err != nil {
					p.t.Fatal(err)
				}
				p.two.AwaitOnline(p.admin)
			}
		},
		filter: "session", says: "start the agent of node-2",
	},
	{
		rule: "a full rack under a maximum skew",
		// One of two instances goes to node-1, and the other may not follow it.
		group: fields{"nodes": []string{"*"}, "minInstances": 2, "spreadConstraint": "rack", "spreadMaxSkew": 1},
		before: func(p *pair) func() {
			p.admin.Do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"rack":"r0"}}`).OK(200)
			return p.hold(fields{"memoryMb": 100})
		},
		filter: "spread", says: "rack=r0 has 1 of the group's instances, rack=r1 only 0",
	},
	{
		rule: "a list of other nodes", group: fields{"nodes": []string{"node-3"}},
		after:  func(p *pair) { cluster.AddNode(p.t, p.c, p.admin, cluster.NodeOptions{ID: "node-3", MemoryMiB: 100}) },
		filter: "nodes", says: `or "*" to the group's nodes, now node-3`,
	},
}

func TestWhatNoNodeMayRunSaysWhyInEveryViewAndRunsOnceTheCauseIsGone(t *testing.T) {
	shared := newPair(t)
	var took []time.Duration
	for n, x := range exclusions {
		t.Run(x.rule, func(t *testing.T) {
			p := shared.on(t)
			name := fmt.Sprint("g", n)
			defer p.tidy(name)
			cure := func() { x.after(p) }
			if x.before != nil {
				cure = x.before(p)
			}
			spec := catGroup(name, fields{"nodes": []string{"node-2"}, "minInstances": 1})
			for k, v := range x.group {
				spec[k] = v
			}
			asked := time.Now()
			createGroup(t, p.admin, spec)
			p.saysWhy(p.waits(name), x.filter, x.says)
			took = append(took, time.Since(asked))
			cure()
			want, _ := spec["minInstances"].(int)
			p.admin.AwaitRunning(name, want)
		})
	}
	slices.Sort(took)
	t.Logf("from the request to the reason in every view: %v", took)
	if middle := took[len(took)/2]; middle > time.Second {
		t.Errorf("the reason is mostly seen after more than a second: %v", took)
	}
}

// saysWhy checks that every view of a waiting instance and its explanation name the filter
// that excludes node-2, or else any node, and the fix.
func (p *pair) saysWhy(i cluster.Instance, filter, says string) {
	p.t.Helper()
	for name, see := range views(p.admin) {
		await.That(p.t, "the reason in the "+name, func() string {
			s := see(i.UID)
			return await.Unless(s.Reason == "NoNodeFits" && strings.Contains(s.Message, "by "+filter+" (") && strings.Contains(s.Message, says), "%+v", s)
		})
	}
	e := explain(p.admin, i.UID)
	if e.Pending == nil || e.Pending.Source != "live" {
		p.t.Fatalf("explained as %+v", e)
	}
	for _, lost := range e.Pending.Lost {
		if lost.Filter == filter && strings.Contains(lost.Fix, says) {
			return
		}
	}
	p.t.Errorf("%s is not explained by %s: %+v", i.ID, filter, e.Pending.Lost)
}

func TestAGroupThatAsksForLessRunsWhatWaitedForMore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	createGroup(t, p.admin, catGroup("greedy", fields{"memoryMb": 5000, "minInstances": 1, "nodeAffinity": []string{"rack=r9"}}))
	waiting := p.waits("greedy")
	p.saysWhy(waiting, "labels", "set the label rack=r9")
	p.admin.Do("PATCH", "/api/v1/groups/greedy", fields{"nodeAffinity": nil}).OK(200)
	await.That(t, "the other reason", func() string {
		i := p.admin.Instance(waiting.UID)
		return await.Unless(strings.Contains(i.Message, "node-1 has 1000 MiB in all, 5000 are requested: lower memoryMb"), "%+v", i)
	})
	p.admin.Do("PATCH", "/api/v1/groups/greedy", fields{"memoryMb": 50}).OK(200)
	if ran := p.admin.AwaitState(waiting.UID, "RUNNING"); ran.ID != waiting.ID {
		t.Errorf("%+v waited, %+v runs", waiting, ran)
	}
	// Running instances are left alone.
	p.admin.Do("PATCH", "/api/v1/groups/greedy", fields{"memoryMb": 60, "minInstances": 2}).OK(200)
	p.admin.AwaitRunning("greedy", 2)
	if ran := p.admin.Instance(waiting.UID); ran.State != "RUNNING" || ran.Generation != 3 {
		t.Errorf("touched: %+v", ran)
	}
}
