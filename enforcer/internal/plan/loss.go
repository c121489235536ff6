package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// outageLook is how often a mass outage is looked at while nothing changes.
const outageLook = time.Minute

// lose says of instances whose node has no session that they are lost, gives up
// those of deleted nodes, and stops those whose group does not want them back.
func (p *pass) lose() {
	for _, i := range p.all {
		stray := i.Stray()
		if p.busy[i.Intent.ID] || !stray && !i.HoldsNode() {
			continue
		}
		node, _ := i.Held()
		since := p.in.lostSince(node)
		switch {
		case since.IsZero():
		case p.in.deleted(node):
			if p.copyIsGone(i) {
				p.act(Action{Kind: Bury, Instance: i, Reason: fleet.ReasonNodeDeleted, Message: fmt.Sprintf("node %s was lost and then deleted", node)})
			}
		case stray: // it is not moved: its records do not say enough
		case i.Stranded(): // moves sees to it
		case !i.Lost():
			if p.due(since, p.in.Limits.LossGrace) {
				p.act(Action{Kind: Lose, Instance: i, Reason: fleet.ReasonNodeLost, Message: p.lossMessage(i)})
			}
		case p.group() != nil && p.spec().NodeLossPolicy() == fleet.NodeLossStop && p.wanted(i) && !p.held(i):
			p.stop(i, fleet.ReasonNodeLost, fmt.Sprintf("node %s is lost, and the group stops what was there", node))
		}
	}
}

// due reports whether a time is over, and else asks for another pass then.
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
		text += fmt.Sprintf("; %d of %d nodes are lost, so nothing is replaced before more are back", p.in.Outage.Lost, p.in.Outage.Nodes)
	}
	return text
}

// displaced reports whether an instance is lost and another is to take its place.
// Those of static groups are moved themselves, see moves.
func (p *pass) displaced(i *fleet.Instance) bool {
	return i.Lost() && p.wanted(i) && p.spec().NodeLossPolicy() == fleet.NodeLossReplace &&
		!p.spec().Static.Enabled && !p.held(i)
}

// suspended counts the lost instances that are not replaced yet. Their places are kept meanwhile.
func (p *pass) suspended() int {
	n := 0
	for _, i := range p.all {
		if i.Lost() && p.wanted(i) && !p.stopped[i.Intent.ID] && !p.living(i) && !p.replaced[i.Intent.ID] && !i.Intent.Frozen && p.held(i) {
			n++
		}
	}
	return n
}

// held reports whether the group has to wait before it acts on the loss of an
// instance's node. Sessions that end for one cause disappear one after another, up to
// a keep-alive interval apart. So the group first waits for further losses, and then
// while they amount to a mass outage. A node that is back is waited for as well: its
// agent is about to report.
func (p *pass) held(i *fleet.Instance) bool {
	node := i.Placement.Node
	since := p.in.lostSince(node)
	if since.IsZero() {
		return true
	}
	return p.massLoss() || !p.due(latest(since, p.in.Outage.MassUntil), p.in.Limits.LossGrace+p.in.Limits.lossWait(p.in.ttl(node)))
}

// massLoss reports whether most of the fleet is lost. A mass outage that lasts becomes
// an ordinary one some day without a change of any record, so it asks for another pass.
func (p *pass) massLoss() bool {
	if !p.in.Outage.Mass(p.in.Limits) {
		return false
	}
	p.wakeAt(p.now.Add(outageLook))
	return true
}

// movesLost reports whether the group's lost instances are moved themselves.
func (p *pass) movesLost() bool {
	return p.group() != nil && p.spec().Static.Enabled && p.spec().NodeLossPolicy() == fleet.NodeLossReplace
}

// endsWithSession reports whether the run that an instance's placement is of ends by
// itself when its node's session does. What was started under another spec, or by a
// plan nobody knows any more, may run on for ever.
func (p *pass) endsWithSession(i *fleet.Instance) bool {
	digest := i.Intent.Plan
	if i.Placement != nil {
		digest = i.Placement.Plan
	}
	plan := p.in.plan(digest)
	return plan != nil && plan.Exclusive()
}

// copyIsGone reports whether nothing of an instance can run on its lost node any more,
// as far as anybody ends it there. An exclusive copy runs until its agent's deadline at
// the latest. That is at most a TTL after the session disappeared, because a session can
// end before the deadline that its owner measures. The margin is for the kill. An agent
// that releases its instances has ended them itself.
func (p *pass) copyIsGone(i *fleet.Instance) bool {
	node, _ := i.Held()
	if p.in.released(node) || !p.endsWithSession(i) {
		return true
	}
	ttl := p.in.ttl(node)
	return p.due(p.in.lostSince(node), ttl+fleet.ExclusiveMargin(ttl))
}

// moves are the next generations of a static group's lost instances that may run
// elsewhere, because their old copies are gone.
func (p *pass) moves() []Action {
	if !p.movesLost() {
		return nil
	}
	var out []Action
	for _, i := range p.all {
		if p.busy[i.Intent.ID] || i.Intent.Frozen || !i.Lost() && !i.Stranded() || !p.wanted(i) || !p.endsWithSession(i) {
			continue
		}
		node := i.Placement.Node
		asked := i.MayLeave(p.in.joined(node))
		if asked || p.in.lostSince(node).IsZero() || !p.in.released(node) && p.held(i) || !p.copyIsGone(i) {
			continue
		}
		message := fmt.Sprintf("%s was on %s, which is lost", i.Intent.Name, node)
		out = append(out, Action{Kind: Again, Instance: i, Reason: fleet.ReasonNodeLost, Message: message})
	}
	return out
}

// doubles ends what returned nodes bring: of those that were made one after the other
// to have one place only one is wanted. Nobody with players is stopped while the other
// has none; when both have, the pair waits for the last player of one.
func (p *pass) doubles() {
	if p.spec().Static.Enabled {
		return
	}
	var places []string // in order of their oldest, so that the same records give the same actions
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
		if !slices.ContainsFunc(inPlace[place], p.moving) {
			p.oneOf(inPlace[place])
		}
	}
}

// oneOf stops whoever is one too many in a place, as far as that is decided.
func (p *pass) oneOf(all []*fleet.Instance) {
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
		p.act(a)
	}
	if open {
		p.pair(all)
	}
}

// pair has those of a place that stay for now counted as one.
func (p *pass) pair(all []*fleet.Instance) {
	var stay []*fleet.Instance
	for _, i := range all {
		if p.living(i) {
			stay = append(stay, i)
		}
	}
	for n, i := range stay {
		p.paired[i.Intent.ID], p.seconds[i.Intent.ID] = len(stay) > 1, n > 0
	}
}

// occupied tells of one that ended or is lost whether somebody living has its place:
// then nobody else is made for it. The living are looked at once, when it is first
// asked: after the loss of a node there are many to ask about.
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

// surplus is the one of a pair to stop; nil while that is open.
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
	if p.in.players(victim) > 0 {
		kept, victim = victim, kept
	}
	if p.in.players(victim) > 0 || !serves(kept) {
		return nil
	}
	return victim
}
