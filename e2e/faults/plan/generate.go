package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// killsPerGroup is how many crashes in a short time do not pause a group.
const killsPerGroup = 2

// world is the name of the static group.
const world = "world"

// worldNames are the names of its instances in half of the scenarios.
var worldNames = []string{"overworld", "nether", "the_end"}

// mostScaled is the highest count that a group is scaled to.
const mostScaled = 6

// Generate returns the scenario of a seed.
func Generate(seed uint64, f Features) Scenario {
	g := &generator{features: f, kills: map[string]int{}}
	s := &g.Scenario
	s.Seed = seed
	g.part(1)
	s.Members = pick(g, 1, 1, 3)
	s.Schedulers, s.Enforcers = 1, 1
	if f.Replicas {
		s.Schedulers, s.Enforcers = 1+g.IntN(3), 1+g.IntN(3)
	}
	s.Gateways, s.Sources = 1+g.IntN(2), 1
	s.Nodes = min(f.Nodes, pick(g, 1, 2, 3, 3))
	g.part(2)
	g.groups()
	s.MemoryMiB = g.memory()
	g.part(3)
	g.faults()
	g.part(4)
	g.clocks()
	return *s
}

// clocks sets the clocks of all services wrong, differently after each restart. The clocks
// of gateways differ by less than a day, because a scenario logs in once and a token is
// valid for a day.
func (g *generator) clocks() {
	g.Clocks = map[string][]time.Duration{}
	wrong := []time.Duration{0, 140 * time.Second, -140 * time.Second, 5 * time.Hour, -5 * time.Hour, 12 * time.Hour, -12 * time.Hour}
	set := func(wrong []time.Duration, names []string) {
		for _, name := range names {
			for range 1 + g.IntN(3) {
				g.Clocks[name] = append(g.Clocks[name], pick(g, wrong...))
			}
		}
	}
	set(wrong, slices.Concat(numbered("scheduler", g.Schedulers), numbered("enforcer", g.Enforcers), g.NodeIDs(), numbered("templatesvc", g.Sources)))
	set(wrong[:len(wrong)-1], numbered("apigateway", g.Gateways))
}

type generator struct {
	*rand.Rand
	Scenario
	features Features
	kills    map[string]int
}

// part begins a part of the scenario, whose draws are independent of the other parts.
func (g *generator) part(n uint64) { g.Rand = rand.New(rand.NewPCG(g.Seed, n)) }

func pick[T any](g *generator, choices ...T) T { return choices[g.IntN(len(choices))] }

// between returns a duration in steps of a tenth of a second.
func (g *generator) between(low, high time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return low + time.Duration(g.Int64N(int64((high-low)/step)+1))*step
}

func (g *generator) groups() {
	for n := range 1 + g.IntN(2) {
		count := 2 + g.IntN(4)
		g.Groups = append(g.Groups, Group{
			Name: fmt.Sprint("lobby", n+1), Count: count, Final: max(1, count+g.IntN(3)-1), MemoryMiB: 50, Template: g.IntN(2) == 0,
		})
	}
	worlds := 1 + g.IntN(len(worldNames))
	var names []string
	if g.Seed%2 == 1 {
		names = worldNames[:worlds]
	}
	g.Groups = append(g.Groups, Group{
		Name: world, Static: true, Names: names, Count: worlds, Final: worlds, MemoryMiB: 100,
		ReplaceOnLoss: g.features.ReplaceStatic && g.IntN(2) == 0,
	})
	if g.IntN(2) == 0 {
		count := 1 + g.IntN(3)
		g.Groups = append(g.Groups, Group{Name: "party", ByHand: true, Count: count, Final: count, MemoryMiB: 50})
	}
	if g.IntN(2) == 0 {
		g.Groups = append(g.Groups, Group{Name: "shaky", Count: 1 + g.IntN(2), Final: 2, MemoryMiB: 50, Crash: g.between(time.Second, 4*time.Second)})
	}
}

// memory returns enough for all instances and not much more.
func (g *generator) memory() int {
	need := 0
	for _, group := range g.Groups {
		need += max(group.Count, group.Final, mostScaled) * group.MemoryMiB
	}
	return need*(5+g.IntN(3))/4/g.Nodes + 100
}

// faults adds five to ten faults, some of them at the same time.
func (g *generator) faults() {
	var at time.Duration
	for range 5 + g.IntN(6) {
		g.Faults = append(g.Faults, g.fault(at))
		at += g.between(0, 1500*time.Millisecond)
	}
	slices.SortStableFunc(g.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// weights returns how often each kind is chosen.
func weights(f Features) []weight {
	out := []weight{
		{Kill, 5},
		{Pause, 4},
		{Stop, 2},
		{CutBoth, 3},
		{CutUp, 2},
		{CutDown, 2},
		{Delay, 2},
		{HalfOpen, 2},
		{Refuse, 1},
		{Outage, 2},
		{Compact, 2},
		{KillWorkload, 4},
		{Scale, 3},
		{Deploy, 5},
		{Drain, 4},
	}
	if f.NodeLoss {
		out = append(out, weight{PowerCut, 3})
	}
	if f.Nodes > 1 {
		out = append(out, weight{Move, 4})
	}
	if f.ReplaceStatic {
		out = append(out, weight{Switch, 2})
	}
	if f.Disks {
		out = append(out, weight{FillDisk, 2})
	}
	return out
}

type weight struct {
	kind Kind
	of   int
}

// Kinds returns all kinds of faults.
func Kinds() []Kind {
	var out []Kind
	for _, w := range weights(Features{Nodes: 2, NodeLoss: true, ReplaceStatic: true, Disks: true}) {
		out = append(out, w.kind)
	}
	return out
}

func (g *generator) kind() Kind {
	var all []Kind
	for _, w := range weights(g.features) {
		all = append(all, slices.Repeat([]Kind{w.kind}, w.of)...)
	}
	return pick(g, all...)
}

// fault draws one fault at the given time.
func (g *generator) fault(at time.Duration) Fault {
	f := Fault{At: at, Kind: g.kind()}
	switch f.Kind {
	case Kill, Stop:
		f.Target, f.For = pick(g, append(g.Services(), g.MemberNames()...)...), g.between(0, 2*TTL)
	case Pause:
		f.Target, f.For = pick(g, append(g.Services(), g.MemberNames()...)...), g.between(TTL/2, 3*TTL)
	case CutBoth, CutUp, CutDown, HalfOpen, Refuse, Delay:
		f.Target, f.For = pick(g, g.Services()...), g.between(TTL/2, 3*TTL)
		f.Peer = g.peer(f.Target)
		if f.Kind == Delay {
			f.Number = 50 + g.IntN(250)
		}
	case Outage:
		f.For = g.between(TTL/2, 3*TTL)
	case Compact:
	case KillWorkload:
		return g.killWorkload(f)
	case Scale:
		return g.scale(f)
	case Switch:
		f.Target, f.Number = world, g.IntN(2)
	case Deploy:
		return g.deploy(f)
	case Drain:
		return g.drain(f)
	case Move:
		return g.move(f)
	case PowerCut:
		f.Target, f.For = pick(g, g.NodeIDs()...), g.between(TTL/2, 4*TTL)
	case FillDisk:
		f.Target, f.For = pick(g, g.NodeIDs()...), g.between(TTL, 3*TTL)
	}
	return f
}

// peer returns the process that a network fault is limited to; empty for all members.
func (g *generator) peer(target string) string {
	if g.Members > 1 && g.IntN(2) == 0 {
		return pick(g, g.MemberNames()...)
	}
	if g.Nodes > 1 && slices.Contains(g.NodeIDs(), target) && g.IntN(4) == 0 {
		return pick(g, numbered("templatesvc", g.Sources)...)
	}
	return ""
}

// killWorkload returns a fault that kills a workload. If that would pause the group, it
// kills a service instead.
func (g *generator) killWorkload(f Fault) Fault {
	group := pick(g, g.Groups...)
	if group.Crash > 0 || g.kills[group.Name] == killsPerGroup {
		f.Kind, f.Target, f.For = Kill, pick(g, g.Services()...), g.between(0, 2*TTL)
		return f
	}
	g.kills[group.Name]++
	f.Target, f.Number = group.Name, g.IntN(max(1, group.Count))
	return f
}

// deploy returns a deployment of a group whose instances do not crash by themselves. Most of its
// instances are replaced at once, because the scenario waits for its end.
func (g *generator) deploy(f Fault) Fault {
	steady := slices.DeleteFunc(slices.Clone(g.Groups), func(group Group) bool { return group.Crash > 0 })
	f.Target, f.Number = pick(g, steady...).Name, 2+g.IntN(3)
	return f
}

// drain returns a drain. A drained node's instances that were started by hand are not replaced, so
// that scenarios with such instances stop a service instead.
func (g *generator) drain(f Fault) Fault {
	if slices.ContainsFunc(g.Groups, func(group Group) bool { return group.ByHand }) {
		f.Kind, f.Target, f.For = Stop, pick(g, g.Services()...), g.between(0, 2*TTL)
		return f
	}
	f.Target, f.Number = pick(g, g.NodeIDs()...), 2+g.IntN(5)
	if g.IntN(2) == 0 {
		f.For = g.between(TTL, 3*TTL)
	}
	return f
}

// move returns a move of a static instance. With one node, it deploys the group instead.
func (g *generator) move(f Fault) Fault {
	if g.Nodes == 1 {
		f.Kind, f.Target, f.Number = Deploy, world, 2
		return f
	}
	static := slices.IndexFunc(g.Groups, func(group Group) bool { return group.Static })
	group := g.Groups[static]
	n := g.IntN(group.Count)
	f.Target, f.Number = fmt.Sprint(world, "-", 1+n), 1+g.IntN(3)
	if len(group.Names) > 0 {
		f.Target = group.Names[n]
	}
	return f
}

func (g *generator) scale(f Fault) Fault {
	group := g.Groups[0]
	f.Target, f.Number = group.Name, g.IntN(mostScaled+1)
	return f
}
