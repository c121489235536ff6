package rebalance

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Limits are the parameters of the rules.
type Limits struct {
	// Threshold is the gap of use, 0..1, that must be exceeded before anything moves.
	Threshold float64
	// Margin is the least amount by which a move must close the gap between its two nodes,
	// as a multiple of the instance's own share. A move closes at most twice that share.
	Margin float64
	// Moves limits the moves in progress.
	Moves int
	// Quiet is how long an instance stays after a move.
	Quiet time.Duration
}

// DefaultLimits returns the default parameters.
func DefaultLimits() Limits {
	return Limits{Threshold: 0.10, Margin: 1, Moves: 8, Quiet: time.Hour}
}

// Node is a node as rebalancing sees it.
type Node struct {
	ID fleet.NodeID
	// Usable means that its agent has a session and that it is not cordoned.
	Usable bool
	// Capacity is what instances may reserve and Used is what they have reserved. A moving
	// instance counts only on its new node.
	Capacity, Used fleet.Resources
}

// Instance is an instance that may move: it is ready, not static and without players, and
// its group allows it.
type Instance struct {
	ID        fleet.InstanceID
	Node      fleet.NodeID
	Resources fleet.Resources
	// MovedAt is the time of its last move or attempt, or zero.
	MovedAt time.Time
}

// Move is one decision, with the use of both nodes before it.
type Move struct {
	Instance fleet.InstanceID
	From, To fleet.NodeID
	// FromUse and ToUse are 0..1.
	FromUse, ToUse float64
}

// Input is everything that Moves depends on.
type Input struct {
	Nodes     []Node
	Instances []Instance
	// UnderWay is the number of moves in progress.
	UnderWay int
	// Fits reports whether an instance would fit on a node as it is. It ignores the other
	// moves of the same decision, which is safe because at most one goes to each node.
	Fits   func(fleet.InstanceID, fleet.NodeID) bool
	Limits Limits
}

// Moves decides which instances to move now, at most one to and one from each node.
func Moves(in Input, now time.Time) []Move {
	room := in.Limits.Moves - in.UnderWay
	if room <= 0 {
		return nil
	}
	movable := map[fleet.NodeID][]Instance{}
	for _, i := range in.Instances {
		if i.MovedAt.IsZero() || now.Sub(i.MovedAt) >= in.Limits.Quiet {
			movable[i.Node] = append(movable[i.Node], i)
		}
	}
	sources, targets := ranked(in.Nodes, movable)
	taken := map[fleet.NodeID]bool{}
	var out []Move
	for _, from := range sources {
		if len(out) == room {
			break
		}
		if m, ok := in.best(from, targets, taken, movable[from.ID]); ok {
			taken[m.From], taken[m.To] = true, true
			out = append(out, m)
		}
	}
	return out
}

// ranked returns the usable nodes with movable instances, fullest first, and all usable
// nodes, emptiest first.
func ranked(nodes []Node, movable map[fleet.NodeID][]Instance) (sources, targets []Node) {
	for _, n := range nodes {
		if !n.Usable {
			continue
		}
		targets = append(targets, n)
		if len(movable[n.ID]) > 0 {
			sources = append(sources, n)
		}
	}
	slices.SortFunc(sources, func(a, b Node) int { return cmp.Or(cmp.Compare(b.use(), a.use()), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(targets, func(a, b Node) int { return cmp.Or(cmp.Compare(a.use(), b.use()), cmp.Compare(a.ID, b.ID)) })
	return sources[:min(len(sources), looks)], targets[:min(len(targets), looks)]
}

// looks bounds how many of the fullest and of the emptiest nodes a decision considers.
const looks = 64

// best returns the move off a node that most closes the gap to the emptiest node that can
// take one.
func (in Input) best(from Node, targets []Node, taken map[fleet.NodeID]bool, movable []Instance) (best Move, ok bool) {
	if taken[from.ID] {
		return Move{}, false
	}
	for _, to := range targets {
		if from.use()-to.use() <= in.Limits.Threshold {
			break
		}
		if taken[to.ID] {
			continue
		}
		closes := 0.0
		for _, i := range movable {
			c := in.closes(from, to, i)
			better := c > closes || ok && c == closes && i.ID < best.Instance
			if c > 0 && better && in.Fits(i.ID, to.ID) {
				best = Move{Instance: i.ID, From: from.ID, To: to.ID, FromUse: from.use(), ToUse: to.use()}
				closes, ok = c, true
			}
		}
		if ok {
			return best, true
		}
	}
	return Move{}, false
}

// closes returns by how much a move closes the gap between its nodes, or 0 when the rules
// forbid the move.
func (in Input) closes(from, to Node, i Instance) float64 {
	before := from.use() - to.use()
	left, joined := from, to
	left.Used, joined.Used = from.Used.Sub(i.Resources), to.Used.Add(i.Resources)
	if left.use() >= from.use() || joined.use() >= from.use() {
		return 0
	}
	share := max(Node{Capacity: from.Capacity, Used: i.Resources}.use(), Node{Capacity: to.Capacity, Used: i.Resources}.use())
	closed := before - math.Abs(left.use()-joined.use())
	if closed < in.Limits.Margin*share-rounding {
		return 0
	}
	return closed
}

// rounding is the tolerance for sums of shares.
const rounding = 1e-9

// use returns the larger of the reserved shares of memory and CPU. A node without capacity
// counts as full when something is reserved on it.
func (n Node) use() float64 {
	return max(share(n.Used.MemoryMiB, n.Capacity.MemoryMiB), share(n.Used.CPU, n.Capacity.CPU))
}

func share(used, whole int) float64 {
	switch {
	case used <= 0:
		return 0
	case whole <= 0:
		return 1
	}
	return float64(used) / float64(whole)
}
