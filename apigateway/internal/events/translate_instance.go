package events

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
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
	was, is := v1State(before), v1State(after)
	if was != is {
		reason, message := after.Why()
		fields := Fields{"oldState": was, "newState": is, "reason": v1Reason(reason), "message": message}
		if was == "" {
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

// v1Reason is the reason as clients see it; a lost node has its own spelling there.
func v1Reason(r fleet.Reason) string {
	if r == fleet.ReasonNodeLost {
		return "NODE_LOST"
	}
	return string(r)
}

// crashed reports whether the revision tells of a crash or a failed start that
// was not told before: a terminal one, or one its agent restarted in place.
func crashed(before, after *fleet.Instance) bool {
	s := after.Status
	if s == nil || s.Generation < after.Intent.Generation {
		return false
	}
	var old fleet.Status
	if before != nil && before.Status != nil && before.Status.Generation == s.Generation {
		old = *before.Status
	}
	return isCrash(s.State) && !isCrash(old.State) || s.Restarts > old.Restarts
}

func isCrash(s fleet.State) bool { return s == fleet.Crashed || s == fleet.Failed }

// crashFields say how it ended. exitCode is null when nobody saw it; the tail of
// the log is not part of the status.
func crashFields(s *fleet.Status) Fields {
	fields := Fields{
		"exitCode": nil, "classification": classify(s), "logTail": []string{}, "uptimeMs": int64(0),
		"reason": s.Reason, "message": s.Message,
	}
	if s.Message == "" {
		fields["message"] = s.Reason.Text()
	}
	if s.Exit != nil && s.Exit.Known {
		fields["exitCode"] = s.Exit.Code
	}
	if !s.StartedAt.IsZero() && s.FinishedAt.After(s.StartedAt) {
		fields["uptimeMs"] = s.FinishedAt.Sub(s.StartedAt).Milliseconds()
	}
	return fields
}

// classify names the kind of crash by reason, then by exit code (128+n after signal n).
func classify(s *fleet.Status) string {
	switch {
	case s.Reason == fleet.ReasonOutOfMemory, s.Exit != nil && s.Exit.OOM:
		return "OOM"
	case s.Reason == fleet.ReasonPortTaken:
		return "PORT_BIND_FAILURE"
	case s.Exit == nil || !s.Exit.Known:
		return "UNKNOWN"
	}
	switch s.Exit.Code {
	case 0:
		return "CLEAN"
	case 1:
		return "GENERAL_ERROR"
	case 130:
		return "SIGINT"
	case 134:
		return "SIGABRT"
	case 137:
		return "SIGKILL"
	case 139:
		return "SIGSEGV"
	case 143:
		return "SIGTERM"
	}
	return "UNKNOWN"
}
