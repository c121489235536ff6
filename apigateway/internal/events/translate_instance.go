package events

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// instance tells what a revision did to an instance: nil before when it is new,
// nil after when its record is gone.
func (t *translator) instance(id fleet.InstanceID, before, after *fleet.Instance) {
	if before == nil && after == nil {
		return // records without an intent are nobody's business
	}
	if after == nil {
		t.store(instanceEvent(InstanceRemoved, before, nil))
		t.count(id, before.Intent.Group, nil)
		return
	}
	reason, message := after.Why()
	for _, step := range stepsBetween(v1State(before), v1State(after), restartedInPlace(before, after)) {
		fields := Fields{"oldState": step.from, "newState": step.to, "reason": v1Reason(reason), "message": message}
		if step.from == "" {
			fields["oldState"] = nil
		}
		t.store(instanceEvent(InstanceStateChanged, after, fields))
	}
	if crashed(before, after) {
		t.store(instanceEvent(InstanceCrashed, after, crashFields(after.Status)))
	}
	t.count(id, after.Intent.Group, after)
}

// count brings the totals up to date.
func (t *translator) count(id fleet.InstanceID, g fleet.GroupName, after *fleet.Instance) {
	if t.totals.instance(id, after) && !slices.Contains(t.moved, g) {
		t.moved = append(t.moved, g)
	}
}

// instanceEvent names the instance: instanceId is the name people use, uid the id for ever.
func instanceEvent(typ Type, i *fleet.Instance, fields Fields) Event {
	if fields == nil {
		fields = Fields{}
	}
	fields["instanceId"], fields["uid"] = i.Intent.Name, i.Intent.ID
	fields["group"], fields["nodeId"] = i.Intent.Group, i.Node()
	return Event{Type: typ, Group: i.Intent.Group, Fields: fields}
}

// v1State is an instance's state in the words of the API's first version, "" for none.
func v1State(i *fleet.Instance) string {
	if i == nil {
		return ""
	}
	switch i.State() {
	case fleet.Unplaced:
		return "SCHEDULED"
	case fleet.Preparing:
		return "PREPARING"
	case fleet.Starting:
		return "STARTING"
	case fleet.Online:
		return "RUNNING"
	case fleet.Stopping:
		return "STOPPING"
	case fleet.Stopped:
		return "STOPPED"
	case fleet.Crashed, fleet.Failed, fleet.Offline:
		return "CRASHED"
	}
	return ""
}

// step is a change of state in the words of the API's first version; from is "" at a beginning.
type step struct{ from, to string }

// followers are the states that PrexorCloud's clients expect after each: STOPPED and CRASHED are
// the end of a record for them.
var followers = map[string][]string{
	"SCHEDULED": {"PREPARING", "STARTING", "RUNNING", "STOPPING", "STOPPED", "CRASHED"},
	"PREPARING": {"SCHEDULED", "STARTING", "RUNNING", "STOPPING", "STOPPED", "CRASHED"},
	"STARTING":  {"SCHEDULED", "RUNNING", "STOPPING", "STOPPED", "CRASHED"},
	"RUNNING":   {"STOPPING", "STOPPED", "CRASHED"},
	"STOPPING":  {"STOPPED", "CRASHED"},
	"STOPPED":   nil,
	"CRASHED":   nil,
}

// stepsBetween are the changes by which clients follow an instance from one state to another. An
// instance keeps its record when it starts again, and when its lost node returns. For clients
// the record ends then, crashed or stopped, and another one begins.
func stepsBetween(was, is string, crashed bool) []step {
	switch {
	case was == is:
		return nil
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

// restartedInPlace reports whether the instance's node has started it again after a crash.
func restartedInPlace(before, after *fleet.Instance) bool {
	return before != nil && before.Status != nil && after.Status != nil &&
		before.Status.Generation == after.Status.Generation && before.Status.Restarts < after.Status.Restarts
}

// v1Reason is the reason as clients see it; a lost node has its own spelling there.
func v1Reason(r fleet.Reason) string {
	if r == fleet.ReasonNodeLost {
		return "NODE_LOST"
	}
	return string(r)
}

// crashed reports whether the revision tells of an end that has no record of its own: a
// start that failed before there was a process, and a restart of the host.
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

// crash tells of the end of a run that nobody asked for, once: when it was recorded. One
// with code 0 is a stop to clients.
func (t *translator) crash(c view.Change) {
	r := record[fleet.Crash](c.After)
	if r == nil || c.Before != nil || r.Category == fleet.CrashClean {
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

// crashFields say why it could not be started, in the fields of a crash.
func crashFields(s *fleet.Status) Fields {
	fields := Fields{
		"crashId": nil, "exitCode": nil, "classification": fleet.CrashUnknown, "signature": "",
		"logTail": []string{}, "uptimeMs": int64(0), "reason": s.Reason, "message": cmp.Or(s.Message, s.Reason.Text()),
	}
	fields["causeSummary"] = fields["message"]
	if s.Reason == fleet.ReasonPortTaken {
		fields["classification"] = fleet.CrashPortBind
	}
	return fields
}
