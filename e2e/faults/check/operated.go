package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Operated returns the deployments, drains and moves that have not ended, the ended deployments and
// failed moves that do not say why, and the outdated instances of completed deployments. An instance that
// was on a lost node when the deployment completed may be outdated: see Spared.
func Operated(s *history.State, spared map[fleet.InstanceID]int64) []string {
	var out []string
	instances := s.Instances()
	for _, name := range slices.Sorted(maps.Keys(s.Groups)) {
		d, ok := s.Latest(name)
		if !ok {
			continue
		}
		state := d.State()
		switch {
		case !state.Final():
			out = append(out, fmt.Sprintf("deployment %d of %s is %s", d.Number, name, state))
		case d.Progress.Message == "" || d.Progress.Reason == "":
			out = append(out, fmt.Sprintf("deployment %d of %s is %s and does not say why", d.Number, name, state))
		}
		for _, id := range slices.Sorted(maps.Keys(instances)) {
			i := instances[id]
			if i.Intent.Group != name || !deployment.Replaceable(i) {
				continue
			}
			if i.Retiring() || i.Intent.Standby {
				out = append(out, fmt.Sprintf("%s takes no players, and deployment %d of %s is %s", i.Intent.Name, d.Number, name, state))
			}
			if state == deployment.Completed && i.Intent.Deployment < d.Number && spared[id] != d.Number {
				out = append(out, fmt.Sprintf("%s is of deployment %d, and deployment %d of %s completed", i.Intent.Name, i.Intent.Deployment, d.Number, name))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.Moves)) {
		switch m := s.Moves[id]; {
		case m.Active():
			out = append(out, fmt.Sprintf("the move of %s to %s is %s", m.Name, m.Target, m.Step))
		case m.Step == move.Failed && (m.Reason == "" || m.Detail == ""):
			out = append(out, fmt.Sprintf("the move of %s to %s failed and does not say why", m.Name, m.Target))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.Desired)) {
		if n := s.Desired[id]; n.Drain != nil {
			out = append(out, fmt.Sprintf("%s is still drained", id))
		}
	}
	return out
}

// Spared returns the number of the latest deployment that completed while an instance was on a lost node.
// A deployment leaves such an instance as it is, also when its node returns.
func Spared(events []history.Event) (map[fleet.InstanceID]int64, error) {
	out := map[fleet.InstanceID]int64{}
	err := history.Walk(events, func(_, after *history.State, _ []history.Event) error {
		for _, p := range after.Progress {
			if p.ModRev != after.Rev || p.State != deployment.Completed {
				continue
			}
			for id, i := range after.Instances() {
				if i.Intent.Group == p.Group && (i.Lost() || i.Stranded()) {
					out[id] = p.Number
				}
			}
		}
		return nil
	})
	return out, err
}

// deadlineSlack is how much earlier than its deadline an instance may seem to be stopped, because the
// recorder saw the beginning of its retirement late.
const deadlineSlack = time.Second

// Occupied returns the orders to stop an instance for a deployment, a drain, a move or because it is
// surplus while it had players, before its deadline.
func Occupied(events []history.Event) ([]string, error) {
	o := &occupied{since: map[string]since{}}
	err := history.Walk(events, func(before, after *history.State, txn []history.Event) error {
		for _, e := range txn {
			o.event(before, after, e)
		}
		return nil
	})
	return o.out, err
}

// since is when a deadline was set, and for when.
type since struct {
	at    record.Time
	limit time.Duration
}

type occupied struct {
	out []string
	// since are the retirements of instances and the drains of nodes.
	since map[string]since
}

// considerate are the reasons for which no instance with players is stopped before its deadline.
var considerate = []fleet.Reason{fleet.ReasonDeployment, fleet.ReasonNodeDrained, fleet.ReasonMoved, fleet.ReasonScaledDown, fleet.ReasonNodeReturned}

func (o *occupied) event(before, after *history.State, e history.Event) {
	kind, rest, ok := keys.Split(e.Key)
	if !ok {
		return
	}
	last := rest[len(rest)-1]
	switch kind {
	case "instances":
		was, is := before.Intents[fleet.InstanceID(last)].Retire, after.Intents[fleet.InstanceID(last)].Retire
		if is != nil && (was == nil || !was.At.Equal(is.At)) {
			o.since[last] = since{e.Seen, time.Duration(is.DeadlineSeconds) * time.Second}
		}
	case "nodes-desired":
		was, is := before.Desired[fleet.NodeID(last)].Drain, after.Desired[fleet.NodeID(last)].Drain
		if is != nil && (was == nil || was.ID != is.ID) {
			o.since[last] = since{e.Seen, is.Timeout()}
		}
	case "orders":
		o.order(before, after.Orders[history.PlaceID{Node: fleet.NodeID(rest[0]), Instance: fleet.InstanceID(last)}], e)
	}
}

func (o *occupied) order(before *history.State, order fleet.Order, e history.Event) {
	was, again := before.Orders[history.PlaceID{Node: order.Node, Instance: order.Instance}]
	if e.Removed || again && was.Generation == order.Generation || !slices.Contains(considerate, order.Reason) {
		return
	}
	if s := before.Statuses[order.Instance].State; s == fleet.Stopping || s.Terminal() {
		return // its agent stops it already, and the report of its players is old
	}
	players := before.Players(order.Node, order.Instance)
	if players == 0 || o.passed(string(order.Instance), e.Seen) || order.Reason == fleet.ReasonNodeDrained && o.passed(string(order.Node), e.Seen) {
		return
	}
	o.out = append(o.out, fmt.Sprintf("revision %d: %s of %s with %d players before its deadline, because %s, %s",
		e.ModRev, order.Action, before.Intents[order.Instance].Name, players, order.Reason, order.Message))
}

// passed reports whether the deadline of an instance or a node has passed.
func (o *occupied) passed(name string, now record.Time) bool {
	s, ok := o.since[name]
	return ok && time.Duration(now-s.at) >= s.limit-deadlineSlack
}

// Moved returns the moves that ended on their targets.
func Moved(events []history.Event) ([]Arrival, error) {
	copied := map[string]record.Time{} // by move
	var out []Arrival
	err := history.Walk(events, func(before, after *history.State, txn []history.Event) error {
		for id, m := range after.Moves {
			if m.ModRev != after.Rev {
				continue
			}
			if was := before.Moves[id]; was.ID == m.ID && was.Step == move.Copying && (m.Step == move.Starting || m.Step == move.Done) {
				copied[m.ID] = txn[0].Seen
			}
			if at, ok := copied[m.ID]; ok && m.Step == move.Done {
				out = append(out, Arrival{Name: m.Name, Source: string(m.Source), Target: string(m.Target), Copied: at})
			}
		}
		return nil
	})
	return out, err
}
