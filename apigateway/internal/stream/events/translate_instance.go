package events

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// instance creates the events for a revision's change of an instance. before is nil for a new instance,
// after for a deleted one.
func (t *translator) instance(id fleet.InstanceID, before, after *fleet.Instance) {
	if before == nil && after == nil {
		return // no event without an intent
	}
	if after == nil {
		t.store(instanceEvent(InstanceRemoved, before, nil))
		t.count(id, before.Intent.Group, nil)
		return
	}
	reason, message := after.Why()
	for _, step := range stepsBetween(stateName(before), stateName(after), restartedInPlace(before, after)) {
		fields := Fields{"oldState": step.from, "newState": step.to, "reason": v1Reason(reason), "message": message}
		if step.from == "" {
			fields["oldState"] = nil
		}
		t.store(instanceEvent(InstanceStateChanged, after, fields))
	}
	if after.Retiring() && (before == nil || !before.Retiring()) {
		t.store(instanceEvent(InstanceDraining, after, Fields{"reason": v1Reason(after.Intent.Retire.Reason), "message": after.Intent.Retire.Message, "deadlineSeconds": after.Intent.Retire.DeadlineSeconds}))
	}
	if before != nil && before.Intent.Warm != after.Intent.Warm {
		t.store(instanceEvent(InstanceWarmChanged, after, Fields{"warm": after.Intent.Warm}))
	}
	if crashed(before, after) {
		t.store(instanceEvent(InstanceCrashed, after, crashFields(after.Status)))
	}
	t.count(id, after.Intent.Group, after)
}

// count updates the totals.
func (t *translator) count(id fleet.InstanceID, g fleet.GroupName, after *fleet.Instance) {
	if t.totals.instance(id, after) && !slices.Contains(t.moved, g) {
		t.moved = append(t.moved, g)
	}
}

// instanceEvent creates an event of an instance. The field instanceId is its name, uid its unique ID.
func instanceEvent(typ Type, i *fleet.Instance, fields Fields) Event {
	if fields == nil {
		fields = Fields{}
	}
	fields["instanceId"], fields["uid"] = i.Intent.Name, i.Intent.ID
	fields["group"], fields["nodeId"] = i.Intent.Group, i.Node()
	return Event{Type: typ, Group: i.Intent.Group, Fields: fields}
}

// stateName returns the name of an instance's state in API v1, "" without an instance.
func stateName(i *fleet.Instance) string {
	if i == nil {
		return ""
	}
	return StateOf(i)
}

// StateOf returns the name of an instance's state in API v1.
func StateOf(i *fleet.Instance) string {
	switch i.State() {
	case fleet.Unplaced:
		return "SCHEDULED"
	case fleet.Preparing:
		return "PREPARING"
	case fleet.Starting:
		return "STARTING"
	case fleet.Online:
		if i.Retiring() {
			return "DRAINING"
		}
		if i.Intent.Standby { // it takes no players yet
			return "STARTING"
		}
		return "RUNNING"
	case fleet.Stopping:
		return "STOPPING"
	case fleet.Stopped, fleet.Sleeping:
		return "STOPPED"
	case fleet.Crashed, fleet.Failed, fleet.Offline:
		return "CRASHED"
	}
	return "CRASHED"
}

// step is a change of state in API v1. from is "" for the first state.
type step struct{ from, to string }

// followers are the states that PrexorCloud's clients expect after each state. For them, STOPPED and
// CRASHED end a record.
var followers = map[string][]string{
	"SCHEDULED": {"PREPARING", "STARTING", "RUNNING", "STOPPING", "STOPPED", "CRASHED"},
	"PREPARING": {"SCHEDULED", "STARTING", "RUNNING", "STOPPING", "STOPPED", "CRASHED"},
	"STARTING":  {"SCHEDULED", "RUNNING", "STOPPING", "STOPPED", "CRASHED"},
	"RUNNING":   {"DRAINING", "STOPPING", "STOPPED", "CRASHED"},
	"DRAINING":  {"RUNNING", "STOPPING", "STOPPED", "CRASHED"},
	"STOPPING":  {"STOPPED", "CRASHED"},
	"STOPPED":   nil,
	"CRASHED":   nil,
}

// stepsBetween returns the changes that lead clients from one state to another. An instance keeps its
// record when it restarts or its lost node returns. For clients, the old record then ends, crashed or
// stopped, and a new one begins.
func stepsBetween(was, is string, crashed bool) []step {
	switch {
	case was == is:
		return nil
	case is == "DRAINING" && was != "RUNNING": // clients know it as a successor of RUNNING only
		return append(stepsBetween(was, "RUNNING", crashed), step{"RUNNING", is})
	case was == "" || slices.Contains(followers[was], is):
		return []step{{was, is}}
	case len(followers[was]) == 0:
		return []step{{"", is}}
	}
	end := "STOPPED"
	if crashed {
		end = "CRASHED"
	}
	return []step{{was, end}, {"", is}}
}

// restartedInPlace reports whether the node restarted the instance after a crash.
func restartedInPlace(before, after *fleet.Instance) bool {
	return before != nil && before.Status != nil && after.Status != nil &&
		before.Status.Generation == after.Status.Generation && before.Status.Restarts < after.Status.Restarts
}

// v1Reason returns a reason in API v1, which has other names for a lost node and for sleep.
func v1Reason(r fleet.Reason) string {
	switch r {
	case fleet.ReasonNodeLost:
		return "NODE_LOST"
	case fleet.ReasonAsleep:
		return "SLEEPING"
	}
	return string(r)
}

// crashed reports whether the revision has a crash without a crash record: a start that failed before
// there was a process, or a restart of the host.
func crashed(before, after *fleet.Instance) bool {
	s := after.Status
	if s == nil || s.Generation < after.Intent.Generation {
		return false
	}
	var old fleet.Status
	if before != nil && before.Status != nil && before.Status.Generation == s.Generation {
		old = *before.Status
	}
	unrecorded := s.StartedAt.IsZero() || s.Reason == fleet.ReasonNodeRebooted
	return isCrash(s.State) && !isCrash(old.State) && unrecorded
}

// crash creates the event for a recorded crash. An unexpected exit with code 0 is a stop for clients,
// not a crash.
func (t *translator) crash(c view.Change) {
	r := record[reports.Crash](c.After)
	if r == nil || c.Before != nil || r.Category == reports.CrashClean {
		return
	}
	fields := Fields{
		"crashId": r.ID, "instanceId": r.Name, "uid": r.Instance, "group": r.Group, "nodeId": r.Node, "exitCode": nil,
		"classification": r.Category, "causeSummary": r.Cause, "signature": r.Fingerprint, "logTail": append([]string{}, r.Last...),
		"uptimeMs": r.Ran().Milliseconds(), "reason": r.Reason, "message": cmp.Or(r.Message, r.Reason.Text()),
	}
	if r.Exit != nil && r.Exit.Known {
		fields["exitCode"] = r.Exit.Code
	}
	t.store(Event{Type: InstanceCrashed, Group: r.Group, Fields: fields})
}

func isCrash(s fleet.State) bool { return s == fleet.Crashed || s == fleet.Failed }

// crashFields returns the fields of a crash for a failed start.
func crashFields(s *fleet.Status) Fields {
	fields := Fields{
		"crashId": nil, "exitCode": nil, "classification": reports.CrashUnknown, "signature": "",
		"logTail": []string{}, "uptimeMs": int64(0), "reason": s.Reason, "message": cmp.Or(s.Message, s.Reason.Text()),
	}
	fields["causeSummary"] = fields["message"]
	if s.Reason == fleet.ReasonPortTaken {
		fields["classification"] = reports.CrashPortBind
	}
	return fields
}
