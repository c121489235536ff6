package events

import (
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Translate returns the events of a batch in order of revision. Events of state changes carry their
// revision; live events have no ID. totals are the figures before the batch and are updated. seen is
// when the batch arrived, for facts without a timestamp in etcd; zero when it comes from history.
//
// The result depends on nothing else, so each replica gives an event the same ID.
func Translate(b view.Batch, totals *Totals, seen time.Time) []Event {
	var out []Event
	for changes := b.Changes; len(changes) > 0; {
		end := slices.IndexFunc(changes, func(c view.Change) bool { return c.Rev != changes[0].Rev })
		if end < 0 {
			end = len(changes)
		}
		t := translator{after: b.After, totals: totals, seen: seen}
		out = append(out, t.revision(changes[:end])...)
		changes = changes[end:]
	}
	if !seen.IsZero() { // history has neither live events nor snapshots to compare
		out = append(out, playerEvents(b)...)
	}
	return out
}

// translator creates the events of one revision.
type translator struct {
	after  *view.Snapshot
	totals *Totals
	seen   time.Time

	stored []Event
	live   []Event
	moved  []fleet.GroupName // groups whose running instances changed, in order
}

// revision returns a revision's events: first those with an ID, numbered if there are several, then the
// live ones.
func (t *translator) revision(changes []view.Change) []Event {
	seen := map[string]bool{} // instances with an event in this revision
	for i, c := range changes {
		if !ofInstance(c.Kind) {
			t.plain(c)
			continue
		}
		id := c.Key[len(c.Key)-1]
		if !seen[id] {
			seen[id] = true
			t.instance(fleet.InstanceID(id), c.InstanceBefore, lastOf(changes[i:], id))
		}
	}
	for _, g := range t.moved {
		t.store(aggregates(g, t.totals.Of(g)))
	}
	rev := changes[0].Rev
	for i := range t.stored {
		t.stored[i].At = Position{Rev: rev}
		if len(t.stored) > 1 {
			t.stored[i].At.N = i + 1
		}
	}
	return append(t.stored, t.live...)
}

func ofInstance(k view.Kind) bool {
	switch k {
	case view.KindIntent, view.KindPlacement, view.KindOrder, view.KindPending, view.KindStatus:
		return true
	default:
		return false
	}
}

// lastOf returns an instance after a revision. One transaction may write several of its records.
func lastOf(changes []view.Change, id string) *fleet.Instance {
	var last *fleet.Instance
	for _, c := range changes {
		if ofInstance(c.Kind) && c.Key[len(c.Key)-1] == id {
			last = c.Instance
		}
	}
	return last
}

func (t *translator) store(e Event) { t.stored = append(t.stored, e) }

// plain handles records that do not belong to an instance.
func (t *translator) plain(c view.Change) {
	switch c.Kind {
	case view.KindGroup:
		t.group(c)
	case view.KindCrash:
		t.crash(c)
	case view.KindCrashLoop:
		t.crashLoop(c)
	case view.KindScaling:
		t.scaling(c)
	case view.KindSession:
		t.session(c)
	case view.KindNodeDesired:
		t.nodeDesired(c)
	case view.KindTemplateHead:
		t.template(c)
	case view.KindReport:
		t.report(c)
	case view.KindNetwork:
		t.network(c)
	case view.KindConfigActive:
		t.config(c)
	case view.KindMaintenance:
		t.maintenance(c)
	case view.KindScheduleState:
		t.schedule(c)
	case view.KindActiveOverlay:
		t.overlays(c)
	case view.KindDeployment:
		t.deployment(c)
	case view.KindProgress:
		t.deploymentProgress(c)
	case view.KindMove:
		t.move(c)
	case view.KindAudit:
		t.audited(c)
	default: // other kinds are internal
	}
}

// record returns one side of a change; nil if the record did not exist.
func record[T any](v any) *T {
	r, _ := v.(*T)
	return r
}

// group creates a group's events. For clients, a group is deleted once it is marked Deleting.
func (t *translator) group(c view.Change) {
	before, after := shown(record[fleet.Group](c.Before)), shown(record[fleet.Group](c.After))
	name := fleet.GroupName(c.Key[0])
	event := func(typ Type) Event {
		return Event{Type: typ, Group: name, Fields: Fields{"groupName": name}}
	}
	switch {
	case before == nil && after == nil:
	case before == nil:
		t.store(event(GroupCreated))
	case after == nil:
		t.store(event(GroupDeleted))
	default:
		t.store(event(GroupUpdated))
		if m := after.Spec.Maintenance; m.On != before.Spec.Maintenance.On {
			e := event(GroupMaintenanceChanged)
			e.Fields["maintenance"], e.Fields["message"] = m.On, m.Message
			t.store(e)
		}
	}
}

func shown(g *fleet.Group) *fleet.Group {
	if g == nil || g.Deleting {
		return nil
	}
	return g
}

// crashLoop creates one event for each crash loop pause of a group.
func (t *translator) crashLoop(c view.Change) {
	before, after := record[crashloop.Loop](c.Before), record[crashloop.Loop](c.After)
	if after == nil || before != nil && !after.PausedUntil.After(before.PausedUntil) {
		return
	}
	t.store(Event{Type: GroupCrashLoop, Group: fleet.GroupName(c.Key[0]), Fields: Fields{
		"group": c.Key[0], "crashCount": after.Crashes, "windowStart": after.Since, "pausedUntil": after.PausedUntil,
		"suspect": after.Blame.Suspect, "suspectNode": after.Blame.Node, "message": after.Text(after.PausedUntil),
	}})
}

// nodeDesired creates an event when a node is cordoned or uncordoned, and for its drain.
func (t *translator) nodeDesired(c view.Change) {
	before, after := record[fleet.NodeDesired](c.Before), record[fleet.NodeDesired](c.After)
	t.drain(c.Key[0], before, after)
	was, is := before != nil && before.Cordoned, after != nil && after.Cordoned
	if was == is {
		return
	}
	fields := Fields{"nodeId": c.Key[0], "cordoned": is, "by": "", "timestamp": t.arrivedAt()}
	if after != nil {
		fields["by"], fields["timestamp"] = after.By, after.At
	}
	t.store(Event{Type: NodeCordonChanged, Fields: fields})
}

// drain creates an event when the drain of a node is requested or complete.
func (t *translator) drain(node string, before, after *fleet.NodeDesired) {
	if after == nil || after.Drain == nil {
		return
	}
	d, had := after.Drain, before != nil && before.Drain != nil && before.Drain.ID == after.Drain.ID
	if !had {
		t.store(Event{Type: NodeDrainRequested, Fields: Fields{
			"nodeId": node, "shutdownAfterDrain": d.Shutdown, "drainTimeoutSeconds": d.TimeoutSeconds, "kickMessage": d.KickMessage, "moveStatic": d.MoveStatic, "timestamp": d.At,
		}})
	}
	if after.Draining() == nil && (!had || before.Draining() != nil) {
		t.store(Event{Type: NodeDrainCompleted, Fields: Fields{"nodeId": node, "timestamp": d.CompletedAt}})
	}
}

// template creates an event when a template's current version changes. The hash of a missing template
// is "".
func (t *translator) template(c view.Change) {
	before, after := record[content.TemplateHead](c.Before), record[content.TemplateHead](c.After)
	var was, is string
	if before != nil {
		was = before.Digest
	}
	if after != nil {
		is = after.Digest
	}
	if was == is {
		return
	}
	ref := content.TemplateRef{Group: c.Key[0], Name: c.Key[1]}
	t.store(Event{Type: TemplateUpdated, Fields: Fields{"templateName": ref.Short(), "oldHash": was, "newHash": is}})
}

// arrivedAt returns when the change arrived, or nil if it comes from history.
func (t *translator) arrivedAt() any {
	if t.seen.IsZero() {
		return nil
	}
	return t.seen.UTC()
}
