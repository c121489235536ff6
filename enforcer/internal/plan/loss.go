package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// outageLook is how often the group is planned again during a mass outage without changes.
const outageLook = time.Minute

// reportLost reports instances as lost whose node has no session. It ends those of deleted nodes,
// and stops those whose group does not want them back.
func (p *pass) reportLost() {
	for _, i := range p.all {
		stray := i.Stray()
		if p.busy[i.Intent.ID] || !stray && !i.HoldsNode() {
			continue
		}
		node, _ := i.Held()
		since := p.in.LostSince(node)
		switch {
		case since.IsZero():
		case p.in.Deleted(node):
			if p.copyIsGone(i) {
				p.act(Action{Kind: EndDeleted, Instance: i, Reason: fleet.ReasonNodeDeleted, Message: fmt.Sprintf("node %s was lost and then deleted", node)})
			}
		case stray: // not moved, because its records are incomplete
		case i.Stranded(): // see moves
		case !i.Lost():
			if p.due(since, p.in.Limits.LossGrace) {
				p.act(Action{Kind: ReportLost, Instance: i, Reason: fleet.ReasonNodeLost, Message: p.lossMessage(i)})
			}
		case p.group() != nil && p.spec().NodeLossPolicy() == fleet.NodeLossStop && p.wanted(i) && !p.held(i):
			p.stop(i, fleet.ReasonNodeLost, fmt.Sprintf("node %s is lost, and the group stops what was there", node))
		}
	}
}

// due reports whether a time limit has passed. If not, it requests another pass at that
// time.
func (p *pass) due(since time.Time, bound time.Duration) bool {
	until := since.Add(bound)
	p.wakeAt(until)
	return !until.After(p.now)
}

func (p *pass) wanted(i *fleet.Instance) bool {
	return i.Intent.Desired == fleet.DesiredRunning && !i.Intent.RestartPending
}

func (p *pass) lossMessage(i *fleet.Instance) string {
	node := i.Placement.Node
	text := fmt.Sprintf("node %s is lost: its agent's session ended", node)
	if p.movesLost() && !p.endsWithSession(i) {
		text += "; it was started before its group said that it may be moved, so nothing there ends the old copy and it waits: restart it once its node is back, or delete the node if it never will be"
	}
	if p.in.Outage.Mass(p.in.Limits) {
		text += fmt.Sprintf("; %d of %d nodes are lost, so the enforcer replaces nothing until more return", p.in.Outage.Lost, p.in.Outage.Nodes)
	}
	return text
}

// displaced reports whether a lost instance needs a replacement. Lost instances of static
// groups are moved instead, see moves.
func (p *pass) displaced(i *fleet.Instance) bool {
	return i.Lost() && p.wanted(i) && p.spec().NodeLossPolicy() == fleet.NodeLossReplace &&
		!p.spec().Static.Enabled && !i.Retiring() && !p.held(i)
}

// suspended counts the lost instances that are not replaced yet. Their places stay
// reserved.
func (p *pass) suspended() int {
	n := 0
	for _, i := range p.all {
		if i.Lost() && p.wanted(i) && !i.Retiring() && !p.stopped[i.Intent.ID] && !p.living(i) && !p.replaced[i.Intent.ID] && !i.Intent.Frozen && p.held(i) {
			n++
		}
	}
	return n
}

// held reports whether the group must wait before it reacts to the loss of an instance's
// node. Sessions that end for a common cause disappear one after another, up to a
// keep-alive interval apart. So the group first waits for further losses, and then as long
// as they are a mass outage. It also waits for a node that is back, because its agent will
// report soon.
func (p *pass) held(i *fleet.Instance) bool {
	node := i.Placement.Node
	since := p.in.LostSince(node)
	if since.IsZero() {
		return true
	}
	return p.massLoss() || !p.due(latest(since, p.in.Outage.MassUntil), p.in.Limits.LossGrace+p.in.Limits.lossWait(p.in.TTL(node)))
}

// massLoss reports whether there is a mass outage. Such an outage may end by the passage of
// time alone, so massLoss requests another pass.
func (p *pass) massLoss() bool {
	if !p.in.Outage.Mass(p.in.Limits) {
		return false
	}
	p.wakeAt(p.now.Add(outageLook))
	return true
}

// movesLost reports whether the group moves its lost instances.
func (p *pass) movesLost() bool {
	return p.group() != nil && p.spec().Static.Enabled && p.spec().NodeLossPolicy() == fleet.NodeLossReplace
}

// endsWithSession reports whether an instance's placed run ends by itself when its node's
// session ends. A run from another spec or an unknown plan may continue forever.
func (p *pass) endsWithSession(i *fleet.Instance) bool {
	digest := i.Intent.Plan
	if i.Placement != nil {
		digest = i.Placement.Plan
	}
	plan := p.in.Plan(digest)
	return plan != nil && plan.Exclusive()
}

// copyIsGone reports whether no copy of an instance can still run on its lost node. An
// exclusive copy runs at most until its agent's deadline. That is at most one TTL after the
// session disappeared, because a session can end before the deadline that its owner
// measures. The margin covers the kill. An agent that releases its instances has already
// ended them. For copies that nothing ends, it returns true.
func (p *pass) copyIsGone(i *fleet.Instance) bool {
	node, _ := i.Held()
	if p.in.Released(node) || !p.endsWithSession(i) {
		return true
	}
	ttl := p.in.TTL(node)
	return p.due(p.in.LostSince(node), ttl+fleet.ExclusiveMargin(ttl))
}

// moves returns restarts on other nodes for a static group's lost instances whose old
// copies are gone, and for instances that were about to wake on a lost node.
func (p *pass) moves() []Action {
	if p.group() == nil || p.spec().NodeLossPolicy() != fleet.NodeLossReplace {
		return nil
	}
	var out []Action
	for _, i := range p.all {
		leaves := (i.Lost() || i.Stranded()) && p.endsWithSession(i)
		if !p.spec().Static.Enabled {
			leaves = i.Stranded() // it slept, so that no process of it is left
		}
		if p.busy[i.Intent.ID] || i.Intent.Frozen || !leaves || !p.wanted(i) {
			continue
		}
		node := i.Placement.Node
		asked := i.MayLeave(p.in.Joined(node))
		if asked || p.in.LostSince(node).IsZero() || !p.in.Released(node) && p.held(i) || !p.copyIsGone(i) {
			continue
		}
		message := fmt.Sprintf("%s was on %s, which is lost", i.Intent.Name, node)
		out = append(out, Action{Kind: Restart, Instance: i, Reason: fleet.ReasonNodeLost, Message: message})
	}
	return out
}

// resolveDuplicates resolves places with several living instances after lost nodes have returned. One
// is kept. An instance with players is never stopped while another is empty. When several
// have players, all stay until only one has.
func (p *pass) resolveDuplicates() {
	if p.spec().Static.Enabled {
		return
	}
	var places []string // by age, so that the result is deterministic
	inPlace := map[string][]*fleet.Instance{}
	for _, i := range p.all {
		if !p.living(i) || i.Lost() {
			continue
		}
		place := i.Intent.Place()
		if inPlace[place] == nil {
			places = append(places, place)
		}
		inPlace[place] = append(inPlace[place], i)
	}
	for _, place := range places {
		if !p.mixed[place] && !slices.ContainsFunc(inPlace[place], p.moving) {
			p.keepOne(inPlace[place])
		}
	}
}

// keepOne stops the surplus instances of a place, as far as the choice is clear.
func (p *pass) keepOne(all []*fleet.Instance) {
	var stops []Action
	kept, open := all[0], false
	for _, second := range all[1:] {
		first := kept
		victim := p.surplus(first, second)
		if victim == nil {
			kept, open = second, true
			continue
		}
		if victim == first {
			kept = second
		}
		stops = append(stops, p.stopping(victim, fleet.ReasonNodeReturned,
			fmt.Sprintf("%s is back with its node: one of it and %s is enough", first.Intent.Name, second.Intent.Name)))
	}
	if n := len(stops); n > 0 && !open && kept.Intent.ReplacedBy != "" {
		stops[n-1].Restores = kept
	}
	for _, a := range stops {
		a.WhileEmpty = true
		p.act(a)
	}
	if open {
		p.pair(all)
	}
}

// pair makes the remaining instances of a place count as one.
func (p *pass) pair(all []*fleet.Instance) {
	var stay []*fleet.Instance
	for _, i := range all {
		if p.living(i) {
			stay = append(stay, i)
		}
	}
	for n, i := range stay {
		p.paired[i.Intent.ID], p.duplicates[i.Intent.ID] = len(stay) > 1, n > 0
	}
}

// occupied returns a function that reports whether a living instance has the place of one
// that ended or is lost. It indexes the living instances on first use, because many may be
// checked after the loss of a node.
func (p *pass) occupied() func(gone *fleet.Instance) bool {
	var taken map[string]bool
	return func(gone *fleet.Instance) bool {
		if taken == nil {
			taken = map[string]bool{}
			for _, i := range p.all {
				if p.living(i) {
					taken[i.Intent.Place()] = true
				}
			}
		}
		return taken[gone.Intent.Place()]
	}
}

// surplus returns which instance of a pair to stop; nil while that is open.
func (p *pass) surplus(first, second *fleet.Instance) *fleet.Instance {
	if first.Intent.RestartPending || second.Intent.RestartPending { // they count as one meanwhile
		return nil
	}
	serves := func(i *fleet.Instance) bool { return i.State() == fleet.Online }
	original := p.spec().OnNodeReturn != fleet.KeepReplacement &&
		serves(first) && first.Status.StartedAt.Before(second.Intent.CreatedAt)
	var victim, kept *fleet.Instance
	switch {
	case original:
		kept, victim = first, second
	case serves(second):
		kept, victim = second, first
	case serves(first) && p.spec().OnNodeReturn != fleet.KeepReplacement:
		kept, victim = first, second
	default:
		return nil
	}
	if p.in.Players(victim) > 0 {
		kept, victim = victim, kept
	}
	if p.in.Players(victim) > 0 || !serves(kept) {
		return nil
	}
	return victim
}
