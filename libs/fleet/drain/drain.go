// Package drain decides what a node's drain does to the instances on the node. The enforcer acts on
// the decisions, and the gateway shows them as progress and as the answer to a dry run.
//
// # Rules
//
//   - A dynamic instance that its group still needs waits until an instance that replaces it is
//     ONLINE on another node, but at most half of the timeout. Then it retires: it gets no joins,
//     its players are moved, and it stops when it is empty.
//   - A static instance retires at once. Its data is on the node, so it starts again when the drain
//     is ended. With NodeDrain.MoveStatic, its data moves to another node once it has ended, and it
//     starts there. Stopped static instances move too. One that cannot move stays down.
//   - At the timeout, every instance is stopped with its players.
//   - A frozen instance is left alone, and the drain waits for it.
//   - An instance whose node is lost is left to the rules for lost nodes.
package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
)

// Verb is what a drain does to an instance now.
type Verb string

// The verbs.
const (
	Wait   Verb = "WAIT"   // it serves until its replacement is ONLINE
	Retire Verb = "RETIRE" // its players are moved, and it stops when it is empty
	Stop   Verb = "STOP"   // it is stopped with its players
	Ending Verb = "ENDING" // it was asked to stop and has not ended yet
	Move   Verb = "MOVE"   // it has ended, and its data moves to another node
	Block  Verb = "BLOCK"  // it is left alone, and the drain waits for it
)

// Step is a decision about one instance.
type Step struct {
	Instance *fleet.Instance
	Node     fleet.NodeID
	Verb     Verb
	Reason   fleet.Reason
	// Message explains the step in a sentence.
	Message string
	Players int
	// Left is how long the instance may keep its players. It is 0 when the time is over.
	Left time.Duration
	// Moves says that the drain moves the data of the instance. Move is that move, nil until a target
	// is chosen.
	Moves bool
	Move  *move.Move
	// halved is when half of the time is over.
	halved time.Time
}

// Group is what the decisions about one group depend on. All functions are required.
type Group struct {
	Spec *fleet.GroupSpec
	// Target is how many living instances the group needs.
	Target int
	// Maintenance says that the group is in maintenance, alone or with all others. Unmet says that
	// a group that it depends on has no ONLINE instance. Neither stops a drain, but both keep
	// replacements from starting.
	Maintenance, Unmet bool
	// Instances are all instances of the group, in any order.
	Instances []*fleet.Instance
	// Draining returns the drain of a node that is not complete, or nil.
	Draining func(fleet.NodeID) *fleet.NodeDrain
	// Move returns the latest move of an instance, or nil.
	Move func(fleet.InstanceID) *move.Move
	// Players returns the reported number of players of an instance.
	Players func(*fleet.Instance) int
}

// Of returns a step for each instance on a draining node, in the order in which they may end, and
// when time alone changes a decision; zero when it does not.
func (g Group) Of(now time.Time) (steps []Step, wake time.Time) {
	serving := 0
	var all, may []*Step // may wait
	for _, i := range g.Instances {
		if s := g.moving(i); s != nil {
			all = append(all, s)
			continue
		}
		d := g.draining(i)
		if d == nil {
			awaits := i.State() == fleet.Sleeping && !i.Retiring() // a transfer wakes it
			if (i.TakesPlayers() || awaits) && i.Intent.Desired == fleet.DesiredRunning {
				serving++
			}
			continue
		}
		s := &Step{Instance: i, Node: i.Node(), Reason: fleet.ReasonNodeDrained, Players: g.Players(i), Moves: d.MoveStatic && g.Spec.Static.Enabled}
		over := d.At.Add(d.Timeout())
		s.Left = max(0, over.Sub(now))
		all = append(all, s)
		if g.settled(s) {
			if s.Verb == Block && i.Intent.Frozen && i.State() == fleet.Online {
				serving++
			}
			continue
		}
		wake = soonest(wake, over, now)
		switch half := d.At.Add(d.Timeout() / 2); {
		case s.Left == 0:
			s.Verb, s.Message = Stop, fmt.Sprintf("node %s is being drained, and its time of %v is over", s.Node, d.Timeout())
			if d.KickMessage != "" {
				s.Message += ": " + d.KickMessage
			}
		case i.Asleep(): // it has no players, and its group starts another one elsewhere if it needs it
			s.Verb = Stop
			s.Message = fmt.Sprintf("node %s is being drained, and it sleeps there", s.Node)
		case g.Spec.Static.Enabled, !i.TakesPlayers(), !g.replaces(), !half.After(now):
			s.Verb = Retire
		default:
			s.halved = half
			may = append(may, s)
		}
	}
	g.keep(may, g.Target-serving)
	for _, s := range all {
		if s.Verb == Wait {
			wake = soonest(wake, s.halved, now)
		}
		if s.Message == "" {
			s.Message = g.message(s)
		}
		steps = append(steps, *s)
	}
	Sort(steps)
	return steps, wake
}

// Sort puts steps into the order in which the instances may end: the sooner and the emptier first.
func Sort(steps []Step) {
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(order(a.Verb), order(b.Verb)), cmp.Compare(a.Players, b.Players), byAge(b.Instance, a.Instance))
	})
}

// Leaves reports whether an instance no longer counts in its group because of a drain, so that its
// group starts another one if it needs it.
func (g Group) Leaves(i *fleet.Instance) bool {
	return !g.Spec.Static.Enabled && g.draining(i) != nil && !i.Lost() && !i.Intent.Frozen
}

// draining returns the drain of the node that an instance holds, or nil.
func (g Group) draining(i *fleet.Instance) *fleet.NodeDrain {
	if !i.HoldsNode() {
		return nil
	}
	return g.Draining(i.Node())
}

// moving returns the step of a static instance whose data a drain moves, or is about to move, because
// it has ended. It is nil for other instances, and for one that this drain could not move.
func (g Group) moving(i *fleet.Instance) *Step {
	if !g.Spec.Static.Enabled {
		return nil
	}
	s := &Step{Instance: i, Node: i.Node(), Verb: Move, Reason: fleet.ReasonNodeDrained, Moves: true}
	m := g.Move(i.Intent.ID)
	switch {
	case m.Active() && m.Step == move.Stopping && i.HoldsNode():
		return nil // it retires or stops first
	case m.Active():
		s.Node, s.Move = m.Source, m
	case i.HoldsNode() || i.Stray() || i.Node() == "" || i.Moved() != nil:
		return nil
	}
	d := g.Draining(s.Node)
	if d == nil || !d.MoveStatic || s.Move == nil && m != nil && m.Drain == d.ID {
		return nil
	}
	return s
}

// settled decides about the instances that the drain does not stop.
func (g Group) settled(s *Step) bool {
	i := s.Instance
	switch {
	case i.Lost() || i.Stranded():
		s.Verb, s.Message = Block, fmt.Sprintf("node %s is lost, so nothing is known about it: start the node's agent again, or delete the node", s.Node)
		s.Reason = fleet.ReasonNodeLost
	case i.Intent.Desired == fleet.DesiredStopped:
		s.Verb, s.Message = Ending, "it was asked to stop"
	case i.Intent.Frozen:
		s.Verb, s.Message = Block, "it is frozen: unfreeze or stop it"
	default:
		return false
	}
	return true
}

// replaces reports whether the group may start replacements.
func (g Group) replaces() bool {
	return g.Spec.Scaling.Mode != fleet.ScalingManual && !g.Maintenance && !g.Unmet
}

// keep lets as many instances wait as are short, those with the most players first. The others
// retire.
func (g Group) keep(may []*Step, short int) {
	slices.SortFunc(may, func(a, b *Step) int {
		return cmp.Or(cmp.Compare(b.Players, a.Players), byAge(a.Instance, b.Instance))
	})
	for n, s := range may {
		s.Verb = Retire
		if n < short {
			s.Verb = Wait
		}
	}
}

func (g Group) message(s *Step) string {
	text := fmt.Sprintf("node %s is being drained", s.Node)
	switch {
	case s.Verb == Wait:
		return text + ": it serves until another instance of the group is ONLINE elsewhere"
	case s.Move != nil:
		return text + fmt.Sprintf(": its data moves to node %s (%s)", s.Move.Target, s.Move.Step)
	case s.Verb == Move:
		return text + ": its data is about to move to another node"
	case s.Moves:
		return text + ": its data moves to another node once it has ended"
	case g.Spec.Static.Enabled:
		return text + ": its data is there, so it starts again when the drain is ended"
	}
	return text
}

// Outlook says what will happen to the instance, in a sentence.
func (s Step) Outlook() string {
	text := s.ends()
	if s.Moves && s.Verb != Move && s.Verb != Block {
		text += "; then " + s.moves()
	}
	return text
}

// moves says where the data of the instance moves.
func (s Step) moves() string {
	switch {
	case s.Move == nil:
		return "another node copies its data, and it starts there"
	case s.Move.Target == "":
		return "it stays down: " + s.Move.Detail
	}
	return fmt.Sprintf("node %s copies its data, and it starts there", s.Move.Target)
}

// ends says how the instance ends.
func (s Step) ends() string {
	left := s.Left.Round(time.Second)
	switch {
	case s.Verb == Move:
		return s.moves()
	case s.Verb == Ending:
		return "it ends by itself"
	case s.Verb == Block:
		return "it is left alone, and the drain waits for it"
	case s.Verb == Stop:
		return fmt.Sprintf("it is stopped now, with its %d players", s.Players)
	case s.Verb == Wait:
		return fmt.Sprintf("another instance of the group starts on another node; then its %d players are moved, and it stops when it is empty, at the latest in %v", s.Players, left)
	case s.Players == 0:
		return "it has no players and stops in a few seconds"
	}
	return fmt.Sprintf("its %d players are moved, and it stops when it is empty, at the latest in %v", s.Players, left)
}

// Down reports whether an instance of a group with this spec was stopped for a drain and keeps its
// place. It starts again when the drain of its node is ended.
func Down(spec *fleet.GroupSpec, i *fleet.Instance) bool {
	stop := i.Intent.Stop
	return spec.Static.Enabled && i.Intent.Desired == fleet.DesiredStopped && !i.Intent.RestartPending &&
		!i.Intent.Frozen && stop != nil && stop.Reason == fleet.ReasonNodeDrained
}

// Retires reports whether an instance retires for a drain. It no longer does when the drain is ended.
func Retires(i *fleet.Instance) bool {
	return i.Retiring() && i.Intent.Retire.Reason == fleet.ReasonNodeDrained
}

// order is the order in which instances end.
func order(v Verb) int { return slices.Index([]Verb{Move, Ending, Stop, Retire, Wait, Block}, v) }

// byAge orders the oldest instance first.
func byAge(a, b *fleet.Instance) int {
	return cmp.Or(cmp.Compare(a.Intent.CreateRev, b.Intent.CreateRev), a.Intent.CreatedAt.Compare(b.Intent.CreatedAt),
		strings.Compare(string(a.Intent.ID), string(b.Intent.ID)))
}

func soonest(wake, t, now time.Time) time.Time {
	if t.After(now) && (wake.IsZero() || t.Before(wake)) {
		return t
	}
	return wake
}
